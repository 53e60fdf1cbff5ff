"""The guard of this process and the gates before its children: this Python again, with the compiled half alone.

As a program it is run by its path, with the path of the compiled half as its first argument. Nothing else is
imported, neither the package nor the site: it is to begin at once, and depends on nothing that the environment says.
"""

import sys

_NAME = "rallypoint._native"


def register() -> None:
    """Says how this program is started again."""
    from rallypoint import _native

    if not sys.executable:
        # Python is within another program. A ``rallypoint`` command will do, if there is one.
        return
    import os

    # Without ``PYTHONHOME``, a Python that needs it would not even begin.
    isolated = "-s" if "PYTHONHOME" in os.environ else "-I"
    _native.register_helper([sys.executable, isolated, "-S", os.path.abspath(__file__), _native.__file__])


def _run() -> None:
    from importlib.machinery import ExtensionFileLoader, ModuleSpec

    path = sys.argv[1]
    loader = ExtensionFileLoader(_NAME, path)
    native = loader.create_module(ModuleSpec(_NAME, loader, origin=path))
    loader.exec_module(native)
    code = native.helper(sys.argv[2:])
    sys.exit(2 if code is None else code)


if __name__ == "__main__":
    _run()
