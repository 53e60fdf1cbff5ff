"""torchrun, but for one thing: when its group has formed, and before it tells the others of its workers, it dies."""

import os

from torch.distributed.elastic.agent.server.api import SimpleElasticAgent
from torch.distributed.run import main

SimpleElasticAgent._assign_worker_ranks = lambda *_: os._exit(9)
main()
