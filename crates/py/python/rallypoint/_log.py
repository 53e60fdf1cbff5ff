"""Hands what the compiled half has to say to ``logging``, under its own names: ``rallypoint.hosting`` and so on."""

import atexit
import logging
import os
import threading

from rallypoint import _native


def start() -> None:
    """Called once, when the first thing is made that may have something to say."""
    if _native.start_log(logging.getLogger("rallypoint").isEnabledFor(logging.DEBUG)):
        threading.Thread(target=_pass_on_for_ever, name="rallypoint-log", daemon=True).start()
        atexit.register(_pass_on_the_rest, os.getpid())


def _pass_on(seconds: float) -> None:
    for level, name, message in _native.next_records(seconds):
        logging.getLogger(name).log(level, "%s", message)


def _pass_on_for_ever() -> None:
    while True:
        _pass_on(3600.0)


def _pass_on_the_rest(pid: int) -> None:
    # A fork has nothing of its own to say.
    if pid == os.getpid():
        _pass_on(0.0)
