"""One of our stores as a ``torch.distributed.Store``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from torch.distributed import Store

import rallypoint
from rallypoint._torch_errors import as_torch

# C++ that holds a store does not keep its Python half alive, and would then find that nothing is implemented.
# So whatever is made here stays. It is small: copies of a store share its connection.
_kept: list[Store] = []


class TorchStore(Store):
    """One of our stores as a ``torch.distributed.Store``. What it raises is PyTorch's as well as ours.

    Args:
        native: the store. It must have no other user, since its timeout changes.
        timeout: how long calls wait, 300 s unless given.
    """

    # PyTorch's stubs leave it out.
    timeout: timedelta

    def __init__(self, native: rallypoint.Store, timeout: timedelta | None = None) -> None:
        super().__init__()
        self._store = native
        if timeout is not None:
            self.set_timeout(timeout)
        _kept.append(self)

    def _patient(self) -> rallypoint.Store:
        """The time-out is a field of the C++ half, which may change it without telling."""
        self._store.set_timeout(self.timeout)
        return self._store

    @as_torch()
    def set(self, key: str, value: str | bytes) -> None:
        self._store.set(key, value)

    @as_torch()
    def get(self, key: str) -> bytes:
        return self._patient().get(key)

    @as_torch()
    def add(self, key: str, num: int) -> int:
        return self._store.add(key, num)

    @as_torch()
    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        return self._store.compare_set(key, expected, desired)

    @as_torch()
    def append(self, key: str, value: str | bytes) -> None:
        self._store.append(key, value)

    @as_torch()
    def check(self, keys: Sequence[str]) -> bool:
        return self._store.check(keys)

    @as_torch()
    def wait(self, keys: Sequence[str], override_timeout: timedelta | None = None) -> None:
        self._store.wait(keys, self.timeout if override_timeout is None else override_timeout)

    @as_torch()
    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        return self._patient().multi_get(keys)

    @as_torch()
    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        self._store.multi_set(keys, values)

    @as_torch()
    def delete_key(self, key: str) -> bool:
        return self._store.delete_key(key)

    @as_torch()
    def num_keys(self) -> int:
        return self._store.num_keys()

    @as_torch()
    def list_keys(self) -> list[str]:
        return self._store.list_keys()

    @as_torch()
    def queue_push(self, key: str, value: str | bytes) -> None:
        self._store.queue_push(key, value)

    @as_torch()
    def queue_pop(self, key: str, block: bool = True) -> bytes:
        return self._patient().queue_pop(key, block)

    @as_torch()
    def queue_len(self, key: str) -> int:
        return self._store.queue_len(key)

    @as_torch()
    def barrier(self, key: str, world_size: int, timeout: timedelta | None = None) -> None:
        self._store.barrier(key, world_size, self.timeout if timeout is None else timeout)

    def has_extended_api(self) -> bool:
        return True

    @as_torch()
    def clone(self) -> TorchStore:
        return TorchStore(self._store.clone(), self.timeout)

    # C++ asks for these two by other names than Python does.
    deleteKey = delete_key
    getNumKeys = num_keys
