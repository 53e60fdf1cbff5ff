"""Signs of progress of a worker, for ``rallypoint run --hang-after``, and for ``hang_after`` under torchrun."""

import os

# The file of this worker; or the directory of the workers of an agent of torchrun, which gives all of them the same
# environment but for their ranks.
_FILE = "RALLYPOINT_PROGRESS_FILE"
_DIRECTORY = "RALLYPOINT_PROGRESS_DIR"


def beat(step: "int | None" = None) -> None:
    """Shows the launcher that this worker makes progress: call it once for each training step.

    The launcher (``rallypoint run --hang-after``, or torchrun with ``--rdzv-conf hang_after=…``) reports where the
    workers of all nodes are when no worker of a node has beaten for so long, with the last ``step`` of each. A beat
    writes to a small file on this host, which takes microseconds. It never fails, keeps nothing open, and may be
    called in any thread or forked process. Without such a launcher it does nothing.

    >>> rallypoint.beat()
    >>> rallypoint.beat(step=1200)
    """
    path = os.environ.get(_FILE)
    if not path:
        directory, rank = os.environ.get(_DIRECTORY), os.environ.get("RANK")
        if not directory or not rank:
            return
        path = f"{directory}/{rank}"
    try:
        # As long as the one before, since truncating a file takes some file systems a millisecond.
        text = b"%-20s\n" % (b"-" if step is None else b"%d" % step)
        # Opened each time: the program may close descriptors that it does not know, and use their numbers again.
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, text)
        finally:
            os.close(file)
    except (OSError, TypeError):
        # The launcher has ended, and its directory with it; or the step is no number.
        pass
