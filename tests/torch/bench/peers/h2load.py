"""`h2load`, a load generator that knows nothing of etcd: its requests, and what it says."""

import os
import pathlib
import re
import shutil
import subprocess

from servers import HOST, TARGET

CONNECTIONS, STREAMS = 7, 10
KEY, VALUE = b"bench/h2load", b"v" * 64


def field(number, value):
    """A protobuf field of bytes."""
    return bytes([number << 3 | 2, len(value)]) + value


def frame(message):
    """A gRPC message that is not compressed."""
    return b"\0" + len(message).to_bytes(4, "big") + message


# The calls, and the messages of their requests.
REQUESTS = {"Put": frame(field(1, KEY) + field(2, VALUE)), "Range": frame(field(1, KEY))}


def program():
    fetched = TARGET / "tools" / "h2load" / "h2load"
    found = os.environ.get("RALLYPOINT_H2LOAD") or (fetched if fetched.exists() else shutil.which("h2load"))
    if not found:
        raise FileNotFoundError("there is no h2load; scripts/test-tools h2load fetches it")
    return str(found)


def requests_a_second(output, count):
    """The rate that h2load tells, if all requests were answered."""
    rate = re.search(r"finished in [^,]*, ([\d.]+) req/s", output)
    answered = re.search(r"(\d+) succeeded", output)
    if not rate or not answered or int(answered[1]) != count:
        raise RuntimeError(f"h2load did not get its {count} answers:\n{output}")
    return float(rate[1])


def run(port, call, count, directory):
    body = pathlib.Path(directory) / call
    body.write_bytes(REQUESTS[call])
    command = [program(), "-n", str(count), "-c", str(CONNECTIONS), "-m", str(STREAMS), "-d", str(body),
               "-H", "content-type: application/grpc", "-H", "te: trailers",
               f"http://{HOST}:{port}/etcdserverpb.KV/{call}"]  # fmt: skip
    output = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
    return requests_a_second(output, count)
