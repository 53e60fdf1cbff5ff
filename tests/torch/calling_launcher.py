"""A program that calls PyTorch's launcher as ``accelerate`` and others do, and then goes on."""

import sys

from torch.distributed import run

run.run(run.parse_args(sys.argv[1:]))
print("and goes on", flush=True)
