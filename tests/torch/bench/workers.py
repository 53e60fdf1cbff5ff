"""The processes that the stock clients run in."""

import json
import pathlib
import subprocess
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]


class Workers:
    """Some processes, for as long as the block lasts."""

    def __init__(self, count):
        command = [sys.executable, "-m", "bench.worker"]
        self.processes = [
            subprocess.Popen(command, cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(count)
        ]

    def run(self, count, job, *arguments):
        """Does a job in this number of processes at once. Returns their reports."""
        processes = self.processes[:count]
        for process in processes:
            say(process, json.dumps([job, arguments]))
        for process in processes:
            assert hear(process) == "ready"
        for process in processes:
            say(process, "go")
        return [json.loads(hear(process)) for process in processes]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


def say(process, line):
    process.stdin.write(line + "\n")
    process.stdin.flush()


def hear(process):
    line = process.stdout.readline()
    if not line:
        sys.exit("a process of the benchmark failed; what it said is above")
    return line.strip()
