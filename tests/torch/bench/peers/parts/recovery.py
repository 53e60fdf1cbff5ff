"""Part b: from a failure to new workers on all nodes that are left, on hosts of their own."""

import time

from .. import charts, tables
from ..hosts import HostJob, Hosts, Launcher, Torchrun

LETTER, NAME, TITLE = "b", "recovery", "Recovery"

RUN, PLUGIN, C10D = "`rallypoint run`", "torchrun, our plugin", "torchrun, `c10d`"
SIDES = [RUN, PLUGIN, C10D]
OURS = [RUN, PLUGIN]

WORKER = "a worker fails"
AGENT = "an agent is killed"
NOTICED = "an agent is killed, and a worker of another node fails at once"
HOST = "a host vanishes"
HEAD_KILLED = "the head's agent is killed"
HEAD_GONE = "the head's host vanishes"

PLANS = {
    # sizes, limit and lease in seconds, and the jobs of each scenario; those that wait for a lease hardly vary
    # A busy machine keeps such a lease, and recovers within such a limit.
    "smoke": ([4], 20, 6, {WORKER: 1, AGENT: 1, NOTICED: 1, HOST: 1, HEAD_KILLED: 1, HEAD_GONE: 1}),
    "quick": ([4], 15, 10, {WORKER: 2, AGENT: 1, HOST: 1}),
    "default": ([4, 16], 25, 10, {WORKER: 3, AGENT: 3, NOTICED: 1, HOST: 2, HEAD_KILLED: 3, HEAD_GONE: 2}),
    "long": ([4, 16], 60, 10, {WORKER: 7, AGENT: 7, NOTICED: 3, HOST: 5, HEAD_KILLED: 5, HEAD_GONE: 5}),
}
ESTIMATES = {"smoke": 110, "quick": 65, "default": 540, "long": 2400}

# The last call of c10d, of which nobody is told that it need not wait, and what else it takes.
LAST_CALL = 45


def measure(part, context):
    sizes, limit, lease, scenarios = PLANS[context.mode]
    crew = context.crew
    kinds = {RUN: Launcher(), PLUGIN: Torchrun(PLUGIN, "rallypoint", crew), C10D: Torchrun(C10D, "c10d", crew)}
    # Who never recovers is not waited for again.
    never = set()
    steps = [
        (size, scenario, number) for size in sizes for scenario, jobs in scenarios.items() for number in range(jobs)
    ]
    part.facts["limit"], part.facts["lease"] = limit, lease
    part.facts["heads"] = context.heads
    with Hosts(max(sizes)) as hosts:
        for index, (size, scenario, number) in enumerate(steps):
            for side in context.turns(number, SIDES):
                context.step(f"{size} nodes, {scenario}, {side}", index / len(steps))
                if scenario == NOTICED and size != sizes[0]:
                    continue
                # One that has not recovered once was waited for long enough.
                if context.mode == "smoke" and side in dict(never):
                    part.note(scenario, f"{size} nodes", side, "not tried")
                    continue
                if (side, scenario) in never:
                    if size != sizes[0]:
                        part.note(scenario, f"{size} nodes", side, f"not tried: not with {sizes[0]} nodes")
                    continue
                heads = context.heads if side in OURS and scenario in (HEAD_KILLED, HEAD_GONE) else 1
                # The default of ours is not named.
                conf = [f"lease_ttl={lease}"] if side in OURS and lease != 10 else []
                with HostJob(kinds[side], hosts, size, heads, conf) as job:
                    if job.hear(size, 120) is None:
                        part.note(scenario, f"{size} nodes", side, "no group formed")
                        context.say(f"no group of {size} formed:\n{job.said()}")
                    elif not lose(part, job, side, size, scenario, limit):
                        never.add((side, scenario))


def lose(part, job, side, size, scenario, limit):
    """Something is lost. Whether the rest formed a group."""
    # For whatever a launcher still does when its workers have started.
    time.sleep(0.5)
    node = 0 if scenario in (HEAD_KILLED, HEAD_GONE) else job.bystander()
    limit = max(limit, LAST_CALL) if scenario == NOTICED else limit
    begun = time.monotonic()
    if scenario == WORKER:
        job.kill_worker(node)
    elif scenario in (HOST, HEAD_GONE):
        job.vanish(node)
    else:
        job.kill_agent(node)
    if scenario == NOTICED:
        job.kill_worker(next(one for one in sorted(job.workers) if one not in (0, node)))
    ended = job.hear(size if scenario == WORKER else size - 1, limit)
    if ended is None:
        part.note(scenario, f"{size} nodes", side, f"not in {limit} s")
        return False
    part.add(scenario, f"{size} nodes", side, ended - begun)
    return True


def rows(part):
    """One table: the scenarios with their sizes."""
    found = []
    for row in part.rows:
        found.append({**row, "what": f"{row['table']}, {row['what']}"})
    order = [WORKER, AGENT, NOTICED, HOST, HEAD_KILLED, HEAD_GONE]
    return sorted(found, key=lambda row: (order.index(row["table"]), int(row["what"].split(", ")[-1].split()[0])))


def plots(part):
    chosen = [
        (row["what"], {side: cell["samples"] or cell["note"] for side, cell in row["cells"].items()
                       if cell["samples"] or cell["note"].startswith("not in")})
        for row in rows(part)
    ]  # fmt: skip

    def draw(theme):
        return charts.bars(
            theme, "From a failure to new workers on all nodes that are left",
            "Seconds, logarithmic; bars are medians, thin lines reach from the lowest to the highest sample.",
            [row for row in chosen if row[1]], SIDES, "time (logarithmic)",
        )  # fmt: skip

    return {"recovery": draw}


def compared(part):
    return rows(part), OURS, SIDES


def blocks(part):
    limit = part.facts["limit"]
    heads = (
        f"In the rows of the head, the endpoint of ours names {part.facts['heads']} hosts, which succeed each other."
        if part.facts["heads"] > 1
        else "The endpoint names one host, so a lost head is lost for ours, too."
    )
    return [
        "Each node is a host of its own (a network namespace) with one worker, a shell script that sleeps. "
        "Options are the defaults of each launcher, with `--nnodes N-1:N`. A host that vanishes is cut off "
        f"without a word: its lease, {part.facts['lease']} s, has to end. The head is the host that the endpoint "
        f"names. {heads} Nobody waits longer than {limit} s for a group ({max(limit, LAST_CALL)} s where a worker "
        "fails at once: `c10d` waits 30 s for the node that does not come).",
        *tables.comparison(*compared(part)),
        "Workers that sleep do not notice that a peer is gone. Those of a real job do when a collective fails or "
        "times out; `c10d` recovers from then on, as in the row in which a worker fails at once.",
    ]
