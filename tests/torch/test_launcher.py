"""Stock PyTorch under `rallypoint run`: its groups, its failures, and what torchrun makes of the same."""

import json
import pathlib
import re

import pytest
from launchers import EXAMPLE, Job, Ours, Stock

SEEN = pathlib.Path(__file__).with_name("seen_job.py")


def test_a_group_over_two_launchers(tmp_path):
    """By `env://`, on the store of the agent of rank 0."""
    with Job(Ours(), tmp_path, nodes=2) as job:
        for _ in range(2):
            job.start("--nproc-per-node", 2, SEEN)
        assert job.exit_codes() == [0, 0], job.said()
        seen = sorted(json.loads(line) for line in re.findall("seen (.*)", job.said()))
    assert seen == [[True, 0, 4, 15], [True, 2, 4, 15]]


def test_a_gloo_job_that_fails_once_restarts(tmp_path):
    """torchrun gives the restarted workers the store of the dead ones, with their addresses in it; as a rule, its
    restart fails for that."""
    with Job(Ours(), tmp_path) as job:
        arguments = ["--nproc-per-node", 2, "--max-restarts", 1, EXAMPLE, "--epochs", 1, "--steps", 6]
        job.start(*arguments, "--checkpoint", tmp_path / "checkpoint.pt", "--fail-at-step", 3, "--fail-rank", 1)
        assert job.exit_codes() == [0], job.said()
        assert job.said().count("ranks, from step") == 2, job.said()


@pytest.fixture(params=[Stock, Ours], ids=["stock", "ours"])
def failed(request, tmp_path):
    """A job of two, of which rank 1 raised an exception. The launcher has an error file of its own to write."""
    with Job(request.param(), tmp_path) as job:
        arguments = [EXAMPLE, "--checkpoint", tmp_path / "checkpoint.pt", "--fail-at-step", 0, "--fail-rank", 1]
        job.start("--nproc-per-node", 2, *arguments, TORCHELASTIC_ERROR_FILE=str(tmp_path / "error.json"))
        assert job.exit_codes() == [1], job.said()
        yield job


def test_a_failure_is_reported(failed, tmp_path):
    """The message and the traceback that `@record` wrote, of the rank that failed first."""
    report = failed.said()
    (cause,) = re.findall(r"^Root cause.*?(?=^---|^===)", report, re.DOTALL | re.IGNORECASE | re.MULTILINE)
    assert re.search(r"rank +: 1 \(local_rank: 1\)", cause), report
    # On a busy machine PyTorch's own threads may abort the process that is about to exit with 1.
    code = re.search(r"exitcode +: (1|-6) ", cause)
    assert code, report
    assert "RuntimeError: rank 1 was told to fail at step 0" in cause, report
    assert "in fail_if_told_to" in cause, report
    message = json.loads((tmp_path / "error.json").read_text())["message"]
    assert message["message"] == "RuntimeError: rank 1 was told to fail at step 0"
    assert message["errorCode"] == int(code[1]), report
    assert "in fail_if_told_to" in message["extraInfo"]["py_callstack"]
    assert message["extraInfo"]["timestamp"].isdigit()
