"""What a bad link costs: how soon it is noticed, and how soon the result of a run that went on without us is here.

Four devices behind links that turn into black holes for 20 s, a second and a bit one after the other, so that they meet
different moments of the keep-alive. Each has a run that ends while nobody can hear it. As root the devices are hosts in
network namespaces whose packets are dropped, so that a new connection gets no answer either; else they are servers on
loopback behind a proxy, which takes a connection and lets nothing through. A figure is the worst of the four.

    python tests/bench/bench_link.py [proxy]

Prints one line a figure: ``name value unit goal ok|short``; exits 1 if one is short, 2 where there is no sshd.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from servers import line, servers
from watched import Watched
from workplace import workplace

from e2e.helpers_ssh import ProxyThread, free_port
from engine.helpers_engine import command, make_plan
from netns.lab_hosts import LabHosts, why_not, workload
from sidewinder.engine import Engine
from sidewinder.errors import TransportError
from sidewinder.model import Device, Policy
from sidewinder.transports.client import AgentClient
from sidewinder.transports.ssh import SshTransport

LINKS = 4
APART_S = 1.3
DROP_S = 20.0
RUN_S = 12.0  # after the last cut, before the first return


class Link(NamedTuple):
    device: Device
    argv: tuple[str, ...]  # of its run
    cut: Callable[[], object]
    heal: Callable[[], object]
    runs: Callable[[], int]  # how often it was started


@contextmanager
def namespaces() -> Iterator[tuple[Path, list[Link]]]:
    with workplace() as folder, LabHosts(folder / "lab", LINKS) as lab:
        yield (
            folder,
            [
                Link(
                    host.device(),
                    workload(host.name, RUN_S),
                    host.drop,
                    host.heal,
                    lambda host=host: len(host.witness.executions),
                )
                for host in lab
            ],
        )


@contextmanager
def proxies() -> Iterator[tuple[Path, list[Link]]]:
    with servers(LINKS) as (folder, fleet), ExitStack() as stack:
        links = []
        for number, server in enumerate(fleet):
            proxy = stack.enter_context(ProxyThread(server.port))
            log = folder / f"ran-{number}"
            links.append(
                Link(
                    server.device(f"d{number}", port=proxy.port),
                    ("sh", "-c", f"echo ran >> $0; sleep {RUN_S}", str(log)),
                    lambda proxy=proxy: proxy.do(lambda one: one.swallow()),
                    lambda proxy=proxy: proxy.do(lambda one: one.heal()),
                    lambda log=log: len(log.read_text().split()) if log.exists() else 0,
                )
            )
        yield folder, links


def drop(root: Path, links: list[Link]) -> tuple[list[float], list[float], int]:
    """Seconds until each loss was noticed, from each return to the result, and how many runs were too many."""
    devices = [link.device for link in links]
    points = [command(*link.argv, device=link.device.id) for link in links]
    plan = make_plan(root, points, devices=devices, policy=Policy())
    keys = {point.device: (str(root), run_id) for run_id, point in plan.points.items()}
    told = Watched()
    engine = Engine(told)
    engine.add_lab(str(root), plan)
    engine.submit(list(keys.values()))
    told.until(lambda now: all(link.runs() for link in links), "all run")
    began_s = time.monotonic()
    cut_s, back_s = {}, {}
    cuts = [(began_s + number * APART_S, link, True) for number, link in enumerate(links)]
    returns = [(at_s + DROP_S, link, False) for at_s, link, _ in cuts]
    for at_s, link, is_cut in sorted([*cuts, *returns], key=lambda moment: moment[0]):
        time.sleep(max(0.0, at_s - time.monotonic()))
        if is_cut:
            link.cut()
        else:
            link.heal()
        (cut_s if is_cut else back_s)[link.device.id] = time.time()
    told.wait(len(links))
    engine.shutdown(60)
    ledger = [json.loads(text) for text in (root / "retries.jsonl").read_text().splitlines()]
    lost = [one for one in ledger if one["event"] == "link_lost"]
    missed_s = {one["device"]: datetime.fromisoformat(one["utc"]).timestamp() for one in reversed(lost)}
    if set(told.done.values()) != {"ok"} or len(missed_s) != len(links):
        print(f"{told.done}: {told.failures}; ledger: {ledger}", file=sys.stderr)
        raise SystemExit(2)
    return (
        [missed_s[one.id] - cut_s[one.id] for one in devices],
        [told.done_s[keys[one.id]] - back_s[one.id] for one in devices],
        sum(link.runs() - 1 for link in links),
    )


async def refused(device: Device) -> float:
    """Seconds until a port that nobody listens on is known to be that."""
    transport = SshTransport(device)
    client = AgentClient(transport, campaign="bench", client_id="bench")
    began_s = time.monotonic()
    try:
        await client.connect()
    except TransportError:
        return time.monotonic() - began_s
    finally:
        await transport.close()
    raise SystemExit(2)


def main() -> int:
    why = "asked for" if sys.argv[1:] == ["proxy"] else why_not()
    with proxies() if why else namespaces() as (folder, links):
        missed_s, fetched_s, again = drop(folder / "runs", links)
    with servers(1) as (_, (server,)):
        device = server.device("nobody", port=free_port())
        asyncio.run(refused(device))  # the first one imports asyncssh
        refused_s = asyncio.run(refused(device))
    print(f"# links are {f'proxies ({why})' if why else 'cables of hosts in network namespaces'}")
    met = line("link_silent_noticed_after", max(missed_s), "s", 15)
    met &= line("link_refused_noticed_after", refused_s * 1e3, "ms", 100)
    met &= line("link_back_to_result", max(fetched_s), "s", 3)
    met &= line("link_runs_repeated", again, "runs", 0)
    print(f"# noticed after {' '.join(f'{one:.1f}' for one in missed_s)} s, ", end="")
    print(f"results after {' '.join(f'{one:.2f}' for one in fetched_s)} s")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
