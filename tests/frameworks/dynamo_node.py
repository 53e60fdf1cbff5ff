"""A process of Dynamo: `worker NAME` serves an endpoint, `client FILE` says in the file whom it reaches there."""

import asyncio
import json
import os
import signal
import sys

from dynamo.runtime import DistributedRuntime, dynamo_worker

ENDPOINT = "test.backend.generate"


@dynamo_worker()
async def worker(runtime: DistributedRuntime, name):
    async def generate(request):
        yield f"{name} answers {request}"

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, runtime.shutdown)
    await runtime.endpoint(ENDPOINT).serve_endpoint(generate)


@dynamo_worker()
async def client(runtime: DistributedRuntime, file):
    known = await runtime.endpoint(ENDPOINT).client()
    answers = {}
    while True:
        there = known.instance_ids()
        for instance in there:
            if instance not in answers:
                async for answer in await known.direct("hello", instance):
                    answers[instance] = answer.data()
        with open(f"{file}.new", "w") as new:
            json.dump({f"{instance:x}": answers[instance] for instance in there}, new)
        os.replace(f"{file}.new", file)
        await asyncio.sleep(0.05)


asyncio.run({"worker": worker, "client": client}[sys.argv[1]](sys.argv[2]))
