"""`python -m bench [--rounds N] [--only agent|etcd] [--json]`"""

import argparse
import os
import resource
import sys

# For the processes that are started, too. See conftest.py.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")

from . import agent_store, etcd_store
from .report import Report
from .workers import Workers


def say(progress):
    print(f"measuring {progress} …", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(prog="bench", description="Our stores and PyTorch's, side by side.")
    parser.add_argument("--rounds", type=int, default=5, help="measure everything N times, in turns (default 5)")
    parser.add_argument("--only", choices=["agent", "etcd"], help="leave the other store out")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    report = Report()
    with Workers(8) as workers:
        if options.only != "etcd":
            agent_store.measure(report, workers, options.rounds, say)
        if options.only != "agent":
            etcd_store.measure(report, workers, options.rounds, say)
    report.print_json() if options.json else report.print_table()


main()
