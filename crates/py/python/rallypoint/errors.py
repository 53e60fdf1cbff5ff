"""What can go wrong. Where PyTorch is in use, what its plugin raises is an instance of PyTorch's classes too."""

__all__ = [
    "ClientError",
    "EtcdServerError",
    "EtcdServerTimeoutError",
    "ForkError",
    "ParameterError",
    "QueueEmptyError",
    "RallypointError",
    "RendezvousClosedError",
    "RendezvousConnectionError",
    "RendezvousError",
    "RendezvousGracefulExitError",
    "RendezvousStateError",
    "RendezvousTimeoutError",
    "ServerError",
    "StoreConnectionError",
    "StoreError",
    "StoreTimeoutError",
]


class RallypointError(Exception):
    """Everything that this package raises by itself."""


class ParameterError(RallypointError, ValueError):
    """An argument or an option makes no sense. The text names it, and says what would be right."""


class ForkError(RallypointError, RuntimeError):
    """Something was made before the process was forked, and is used after it."""


class ClientError(RallypointError, ConnectionError):
    """The servers could not be asked, or refused."""


class RendezvousError(RallypointError):
    """No group has formed."""


class RendezvousClosedError(RendezvousError):
    """The run is closed, by whom and why is in the text."""


class RendezvousTimeoutError(RendezvousError, TimeoutError):
    """No group has formed in time; who was missing is in the text."""


class RendezvousConnectionError(RendezvousError, ConnectionError):
    """The servers could not be asked, or refused."""


class RendezvousStateError(RendezvousError):
    """What the nodes share makes no sense, or they disagree."""


class RendezvousGracefulExitError(RendezvousError):
    """The node was a spare, and was not needed. That is no failure."""


class StoreError(RallypointError):
    """A store did not do as asked."""


class StoreTimeoutError(StoreError, TimeoutError):
    """What a call waited for did not come in time."""


class StoreConnectionError(StoreError, ConnectionError):
    """The store could not be asked."""


class QueueEmptyError(StoreError):
    """A queue is empty, and waiting was not wanted."""


class ServerError(RallypointError):
    """The server did not start, or ended by itself."""


class EtcdServerError(RallypointError, RuntimeError):
    """There is no etcd, or no longer."""


class EtcdServerTimeoutError(EtcdServerError, TimeoutError):
    """etcd was not ready in time."""
