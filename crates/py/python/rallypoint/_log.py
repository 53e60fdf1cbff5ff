"""Hands what the compiled half has to say to ``logging``, under the names of its
log targets: ``rallypoint.embedded`` and so on."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import traceback

from rallypoint import _native

# Held from taking the records to the end of logging them, so that its holder finds no record half logged.
_turn = threading.Lock()

# How long the end of the process may be held up by a handler that is slow.
_PATIENCE = 5.0


def start() -> None:
    """Called once, when the first thing is made that may have something to say. Whether anybody wants to hear it
    at the level DEBUG is asked then, and not again."""
    if _native.start_log(logging.getLogger("rallypoint").isEnabledFor(logging.DEBUG)):
        threading.Thread(target=_pass_on_for_ever, name="rallypoint-log", daemon=True).start()
        atexit.register(_pass_on_the_rest, os.getpid())


def _pass_on() -> None:
    for level, name, message in _native.next_records():
        try:
            logging.getLogger(name).log(level, "%s", message)
        except Exception:
            # A filter that is broken must not cost the records that follow. As ``logging`` does with handlers.
            if logging.raiseExceptions:
                traceback.print_exc()


def _pass_on_for_ever() -> None:
    while True:
        _native.wait_for_records(3600.0)
        with _turn:
            _pass_on()


def _pass_on_the_rest(pid: int) -> None:
    # A fork has nothing of its own to say.
    if pid == os.getpid() and _turn.acquire(timeout=_PATIENCE):
        try:
            _pass_on()
        finally:
            _turn.release()
