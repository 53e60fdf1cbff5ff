"""Our exceptions as PyTorch's: classes that are both, made when one is first needed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from rallypoint import errors

_made: dict[type[errors.RallypointError], type[errors.RallypointError]] = {}


def _both(ours: type[errors.RallypointError]) -> type[errors.RallypointError]:
    if ours not in _made:
        # Another thread may have been quicker, and then its class is the one.
        _made.setdefault(ours, _make(ours))
    return _made[ours]


def _make(ours: type[errors.RallypointError]) -> type[errors.RallypointError]:
    theirs = _counterpart(ours)
    if theirs is None or issubclass(ours, theirs):
        return ours

    def reduce(error: errors.RallypointError) -> tuple[Any, ...]:
        # Under its name ours is found, and not this one.
        return _again, (ours, error.args), error.__dict__

    body = {"__doc__": ours.__doc__, "__module__": ours.__module__, "__reduce__": reduce}
    return type(ours.__name__, (ours, theirs), body)


def _again(ours: type[errors.RallypointError], args: tuple[Any, ...]) -> errors.RallypointError:
    """An exception that was pickled."""
    return _both(ours)(*args)


def _counterpart(ours: type[errors.RallypointError]) -> type[Exception] | None:
    from torch import distributed
    from torch.distributed.elastic import rendezvous

    theirs: type[Exception] | None = None
    if issubclass(ours, errors.RendezvousError):
        theirs = getattr(rendezvous, ours.__name__, rendezvous.RendezvousError)
    elif issubclass(ours, errors.QueueEmptyError):
        theirs = getattr(distributed, "QueueEmptyError", distributed.DistStoreError)
    elif issubclass(ours, (errors.StoreError, errors.ClientError)):
        theirs = distributed.DistStoreError
    return theirs


@contextlib.contextmanager
def as_torch() -> Iterator[None]:
    """What is raised within is an instance of PyTorch's class too."""
    try:
        yield
    except errors.RallypointError as error:
        both = _both(type(error))
        if both is type(error):
            raise
        raise both(*error.args).with_traceback(error.__traceback__) from error.__cause__
