"""The ``rallypoint`` command: ``python -m rallypoint``."""

import signal
import sys

from rallypoint import _native


def main() -> None:
    # The command has handlers of its own, which must not be followed by Python's.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_native.main(["rallypoint", *sys.argv[1:]], sys.executable or None))


if __name__ == "__main__":
    main()
