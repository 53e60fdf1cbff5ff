"""A worker that writes its environment down, as JSON, into the directory given. Without PyTorch, to be quick."""

import json
import os
import pathlib
import sys

directory = pathlib.Path(sys.argv[1])
name = f"{os.environ['ROLE_NAME']}-{os.environ['GROUP_RANK']}-{os.environ['RANK']}"
(directory / name).write_text(json.dumps(dict(os.environ)))
