"""Ways to write down what happened, so that it can be compared."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from torch.distributed import DistNetworkError

# How a lost connection shows depends on what the client was about when it was lost.
LOST = ("Failed to recv, got 0 bytes", "Connection reset by peer", "Broken pipe")
CONNECTION_LOST = ("DistNetworkError", "connection lost")


def milliseconds(number):
    return timedelta(milliseconds=number)


def outcome(call, *arguments, **options):
    """What a call returned, or the kind and the first line of what it raised."""
    try:
        return call(*arguments, **options)
    except Exception as error:
        text = str(error).partition("\n")[0]
        if isinstance(error, DistNetworkError) and text.startswith(LOST):
            return CONNECTION_LOST
        return type(error).__name__, text


def together(*calls):
    """Makes calls at the same time and returns their outcomes, in the order of the calls."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(outcome, call) for call in calls]]
