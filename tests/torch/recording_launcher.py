"""torchrun in a program that takes PyTorch's events of a rendezvous: a line for each, in the file ``RDZV_EVENTS``."""

import logging
import os
import sys

from torch.distributed import run
from torch.distributed.elastic.events import handlers

handlers._log_handlers["dynamic_rendezvous"] = logging.FileHandler(os.environ["RDZV_EVENTS"])
run.main(sys.argv[1:])
