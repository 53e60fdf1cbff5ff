"""Which build of ours is measured: a release, unless the benchmark itself is what is tried."""

from servers import TARGET

profile = "release"


def rallypoint():
    return TARGET / profile / "rallypoint"
