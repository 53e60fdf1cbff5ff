"""Our exceptions as PyTorch's: classes that are both, made when one is first needed."""

import contextlib
import functools

from rallypoint import errors


@functools.lru_cache(maxsize=None)
def _both(ours):
    theirs = _counterpart(ours)
    if theirs is None or issubclass(ours, theirs):
        return ours
    return type(ours.__name__, (ours, theirs), {"__doc__": ours.__doc__, "__module__": ours.__module__})


def _counterpart(ours):
    from torch import distributed
    from torch.distributed.elastic import rendezvous

    if issubclass(ours, errors.RendezvousError):
        return getattr(rendezvous, ours.__name__, rendezvous.RendezvousError)
    if issubclass(ours, errors.QueueEmptyError):
        return getattr(distributed, "QueueEmptyError", distributed.DistStoreError)
    if issubclass(ours, (errors.StoreError, errors.ClientError)):
        return distributed.DistStoreError
    return None


@contextlib.contextmanager
def as_torch():
    """What is raised within is an instance of PyTorch's class too."""
    try:
        yield
    except errors.RallypointError as error:
        both = _both(type(error))
        if both is type(error):
            raise
        raise both(*error.args).with_traceback(error.__traceback__) from error.__cause__
