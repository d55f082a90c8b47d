"""A lab of real peers: what is done to it happens, is seen, and is repaired; and a fault that is planted is found."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import broadloom
from broadloom.groups import groups
from broadloom.record import read
from broadloom.testing.cluster.cluster import LocalCluster
from broadloom.testing.cluster.cluster_state import PeerNotFoundError
from broadloom.testing.cluster.config import NO_TRAFFIC, ClusterConfig, TrafficRates
from broadloom.testing.cluster.timeline import (
    Annotation,
    Change,
    LinkAdded,
    LinkRemoved,
    MessageHop,
    MessageSent,
    PeerAdded,
    PeerRemoved,
)
from broadloom.testing.processes.pool import ClusterError
from broadloom.testing.workloads.chat import THREADS
from tests.transport.connections import run_test, until

PEERS = 8
TIMEOUT_S = 60.0
"""Far more than is needed: these tests share their machine with others."""
BUSY_TRAFFIC = TrafficRates(chat_per_s=6, ticks_per_s=10, identifications_per_s=2, ads_per_s=1)


def links(cluster: LocalCluster) -> set[tuple[int, int]]:
    return {(min(peer, other), max(peer, other)) for peer, view in cluster.now().items() for other in view.links}


def all_hold(cluster: LocalCluster) -> bool:
    return all(promise.holds and not promise.is_pending for promise in cluster.guarantees())


def links_from_changes(changes: list[Change]) -> set[tuple[int, int]]:
    """The links that stand when all that was told has happened."""
    standing: set[tuple[int, int]] = set()
    for change in changes:
        if isinstance(change, LinkAdded):
            standing.add((change.a, change.b))
        elif isinstance(change, LinkRemoved):
            standing.remove((change.a, change.b))
    return standing


async def grow_and_disturb(cluster: LocalCluster) -> None:
    await cluster.wait_until_grown(TIMEOUT_S)
    assert len(cluster.now()) == cluster.process_count == PEERS
    assert all(len(view.links) == 4 and not view.free_slots for view in cluster.now().values())

    killed = await cluster.kill_random(2)
    assert not set(killed) & cluster.now().keys()
    assert await cluster.wait_until_converged(TIMEOUT_S) is not None
    with pytest.raises(PeerNotFoundError, match="was killed"):
        await cluster.kill(killed[:1])

    frozen = next(iter(cluster.now()))
    assert await cluster.pause(frozen) == [frozen]
    assert cluster.now()[frozen].is_paused
    with pytest.raises(ClusterError, match="thaw it first"):
        await cluster.leave([frozen])
    assert await cluster.wait_until_converged(TIMEOUT_S) is not None  # the others go on without it
    assert not any(frozen in view.links for peer, view in cluster.now().items() if peer != frozen)
    await cluster.resume(frozen)
    await cluster.wait_until_converged(TIMEOUT_S)
    assert len(cluster.now()[frozen].links) == 4

    await cluster.partition()
    with pytest.raises(ClusterError, match="heal it first"):
        await cluster.partition()
    await until(lambda: "2 parts, of 3, 3 peers" in cluster.guarantees()[-1].summary, TIMEOUT_S)
    await cluster.heal()
    await cluster.wait_until_converged(TIMEOUT_S)
    assert cluster.guarantees()[-1].summary == "all 6 peers can be reached from each other"

    newcomers = await cluster.add(2)
    await cluster.wait_until_converged(TIMEOUT_S)
    assert newcomers[1] in cluster.now()
    await cluster.leave(newcomers[:1])
    await cluster.wait_until_converged(TIMEOUT_S)
    assert newcomers[0] not in cluster.now()


def test_what_is_done_to_a_lab_happens_and_is_repaired(tmp_path: Path) -> None:
    async def main() -> None:
        async with LocalCluster.start(ClusterConfig(peers=PEERS, tape=tmp_path, rates=BUSY_TRAFFIC)) as lab:
            await grow_and_disturb(lab)
            await until(lambda: all_hold(lab), TIMEOUT_S)
            # Somebody else takes part, and is answered.
            async with (
                broadloom.connect(lab.channel, bootstrap=lab.bootstrap()) as channel,
                groups(channel, "Visitor") as here,
            ):
                title = next(iter(THREADS))
                group = await here.create(title, well_known_name=title)
                question = await group.send_text("Is anybody there?")
                await until(lambda: len(list(group.thread(question))) > 1, TIMEOUT_S)
                await until(lambda: all_hold(lab), TIMEOUT_S)
            await until(lambda: all_hold(lab), TIMEOUT_S)
            await lab.wait_until_delivered(TIMEOUT_S)

            _, changes = lab.changes(0)
            assert links_from_changes(changes) == links(lab)
            came = [change.peer_id for change in changes if isinstance(change, PeerAdded)]
            gone = {change.peer_id: change.reason for change in changes if isinstance(change, PeerRemoved)}
            assert len(came) == len(set(came)) == PEERS + 2
            assert sorted(gone.values()) == ["killed", "killed", "left"]
            assert lab.now().keys() == set(came) - gone.keys()
            said = {(change.author, change.sequence) for change in changes if isinstance(change, MessageSent)}
            hops = [change for change in changes if isinstance(change, MessageHop)]
            followed = {(hop.author, hop.sequence) for hop in hops}
            assert len(followed & said) > len(followed) / 2 > 0  # those of the visitor, for example, nobody tells
            assert all(hop.source == hop.author for hop in hops if hop.hops == 1)
            assert any(isinstance(change, Annotation) and "were killed" in change.text for change in changes)

            samples = lab.samples()
            assert max(sample.latency_p99_ms for sample in samples) > 0
            assert max(sample.redundancy for sample in samples) > 1
            assert lab.totals.delivered > lab.totals.sent > 100
            assert (lab.guarantee_checks.violation_count, lab.guarantee_checks.error_count, lab.dropped_rows) == (
                0,
                0,
                0,
            )

    run_test(main)
    _check_tape(tmp_path)


def _check_tape(folder: Path) -> None:
    """What the tables read: conversations, subscribers, adverts."""
    rows = read(folder).to_pylist()
    sent = {(row["author"], row["sequence"]): row for row in rows if row["kind"] == "sent"}
    chat = [row for row in sent.values() if row["topic"] == "chat"]
    replies = [row for row in chat if row["parent_author"] is not None]
    assert {row["group_id"] for row in chat} <= THREADS.keys()
    assert replies
    known = [sent.get((row["parent_author"], row["parent_sequence"])) for row in replies]
    assert any(known)  # those of the visitor, and of who was killed, may be on no tape
    assert all(parent["group_id"] == row["group_id"] for parent, row in zip(known, replies, strict=True) if parent)
    kinds = {row["kind"] for row in rows}
    assert {"identification", "ad_impression", "joined", "left", "delivered", "link_up", "link_down"} <= kinds


def test_a_delivery_that_is_withheld_is_found() -> None:
    async def main() -> None:
        async with LocalCluster.start(ClusterConfig(peers=3, rates=TrafficRates(ticks_per_s=20))) as lab:
            await lab.wait_until_grown(TIMEOUT_S)
            await until(lambda: lab.totals.delivered > 50, TIMEOUT_S)
            assert lab.guarantees()[0].holds
            await lab.suppress_deliveries(next(iter(lab.now())))
            await until(lambda: not lab.guarantees()[0].holds, TIMEOUT_S)
            assert "was given" in lab.guarantees()[0].summary
            assert lab.guarantee_checks.violation_count == 1

    run_test(main)


def test_what_is_lacking_at_the_end_is_found() -> None:
    """Nothing comes any more, so that no later message shows the gap."""

    async def main() -> None:
        async with LocalCluster.start(ClusterConfig(peers=3, rates=NO_TRAFFIC)) as lab:
            await lab.wait_until_grown(TIMEOUT_S)
            await lab.wait_until_delivered(TIMEOUT_S)
            await lab.suppress_deliveries(next(iter(lab.now())), count=1_000_000)
            before = lab.totals.sent
            lab.set_traffic(TrafficRates(ticks_per_s=20))
            await until(lambda: lab.totals.sent > before + 20, TIMEOUT_S)
            with pytest.raises(ClusterError, match=r"has not got|has nothing of"):
                await lab.wait_until_delivered(timeout_s=1.0)
            assert not lab.guarantees()[1].holds

    run_test(main)


ORPHAN_SCRIPT = """
import asyncio
from broadloom.testing.cluster.cluster import LocalCluster
from broadloom.testing.cluster.config import ClusterConfig

async def main():
    async with LocalCluster.start(ClusterConfig(peers=3)) as lab:
        await lab.wait_until_grown(60)
        print(*(worker.pid for worker in lab._pool.workers), flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "Ctrl-C"])
def test_nobody_outlives_whoever_started_the_lab(how: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", ORPHAN_SCRIPT], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 3
        process.send_signal(how)
        process.wait(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    while left := [pid for pid in pids if _is_alive(pid)]:
        assert time.monotonic() < deadline, f"{left} are left behind"
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
