"""A local cluster of real peers: operations take effect, are observed and repaired, and injected bugs are detected."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import broadloom
from broadloom.groups import Groups
from broadloom.record import read
from broadloom.testing import ClusterConfig, ClusterError, LocalCluster, PeerNotFoundError, TrafficRates
from broadloom.testing.cluster.config import NO_TRAFFIC
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
from broadloom.testing.workloads import feed
from broadloom.testing.workloads.chat import THREADS
from tests.support import eventually, wait_until
from tests.testing.chaos.real_runs import is_running, running

PEERS = 8
TIMEOUT_S = 60.0
"""Generous: these tests share the machine with others."""
BUSY_TRAFFIC = TrafficRates(chat_per_s=6, ticks_per_s=10, identifications_per_s=2, ads_per_s=1)


def open_sockets() -> int:
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            count += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return count


@pytest.fixture
async def no_leaks() -> AsyncIterator[None]:
    """Check that a test leaves no task and no socket behind, and that no exception reached the event loop."""
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: errors.append(context))
    before = open_sockets()
    yield
    await eventually(lambda: len(asyncio.all_tasks()) == 1 and open_sockets() <= before, "no leaks", timeout_s=5.0)
    assert errors == []


def links(cluster: LocalCluster) -> set[tuple[int, int]]:
    return {(min(peer, other), max(peer, other)) for peer, view in cluster.now().items() for other in view.links}


def all_hold(cluster: LocalCluster) -> bool:
    return all(guarantee.holds and not guarantee.is_pending for guarantee in cluster.guarantees())


def links_from_changes(changes: list[Change]) -> set[tuple[int, int]]:
    """Apply all link changes and return the resulting links."""
    result: set[tuple[int, int]] = set()
    for change in changes:
        if isinstance(change, LinkAdded):
            result.add((change.a, change.b))
        elif isinstance(change, LinkRemoved):
            result.remove((change.a, change.b))
    return result


async def grow_and_disturb(cluster: LocalCluster) -> None:
    await cluster.wait_until_grown(TIMEOUT_S)
    assert len(cluster.now()) == cluster.process_count == PEERS
    assert all(len(view.links) == 4 and not view.free_slots for view in cluster.now().values())

    killed = await cluster.kill_random(2)
    assert not set(killed) & cluster.now().keys()
    assert await cluster.wait_until_converged(TIMEOUT_S) is not None
    with pytest.raises(PeerNotFoundError, match="was killed"):
        await cluster.kill(killed[:1])

    paused = next(iter(cluster.now()))
    assert await cluster.pause(paused) == [paused]
    assert cluster.now()[paused].is_paused
    with pytest.raises(ClusterError, match="resume it first"):
        await cluster.leave([paused])
    assert await cluster.wait_until_converged(TIMEOUT_S) is not None  # the others repair the fabric without it
    assert not any(paused in view.links for peer, view in cluster.now().items() if peer != paused)
    await cluster.resume(paused)
    await cluster.wait_until_converged(TIMEOUT_S)
    assert len(cluster.now()[paused].links) == 4

    await cluster.partition()
    with pytest.raises(ClusterError, match="heal it first"):
        await cluster.partition()
    await eventually(lambda: "2 components, of 3, 3 peers" in cluster.guarantees()[-1].summary, timeout_s=TIMEOUT_S)
    await cluster.heal()
    await cluster.wait_until_converged(TIMEOUT_S)
    assert cluster.guarantees()[-1].summary == "all 6 peers can reach each other"
    assert cluster.diameter() in (1, 2)

    joined = await cluster.add(2)
    await cluster.wait_until_converged(TIMEOUT_S)
    assert joined[1] in cluster.now()
    await cluster.leave(joined[:1])
    await cluster.wait_until_converged(TIMEOUT_S)
    assert joined[0] not in cluster.now()


@pytest.mark.usefixtures("no_leaks")
async def test_operations_on_a_cluster_take_effect_and_are_repaired(tmp_path: Path) -> None:
    async with LocalCluster.start(ClusterConfig(peers=PEERS, tape=tmp_path, rates=BUSY_TRAFFIC)) as cluster:
        await grow_and_disturb(cluster)
        await eventually(lambda: all_hold(cluster), timeout_s=TIMEOUT_S)
        # An external peer takes part and gets a reply.
        async with (
            broadloom.connect(cluster.channel, bootstrap=cluster.bootstrap()) as channel,
            Groups(channel, "Visitor") as visitor,
        ):
            title = next(iter(THREADS))
            group = await visitor.create(title, well_known_name=title)
            question = await group.send_text("Is anybody there?")
            await eventually(lambda: len(list(group.thread(question))) > 1, timeout_s=TIMEOUT_S)
            await eventually(lambda: all_hold(cluster), timeout_s=TIMEOUT_S)
        await eventually(lambda: all_hold(cluster), timeout_s=TIMEOUT_S)
        await cluster.wait_until_delivered(TIMEOUT_S)

        _, changes = cluster.changes(0)
        assert links_from_changes(changes) == links(cluster)
        added = [change.peer_id for change in changes if isinstance(change, PeerAdded)]
        removed = {change.peer_id: change.reason for change in changes if isinstance(change, PeerRemoved)}
        assert len(added) == len(set(added)) == PEERS + 2
        assert sorted(removed.values()) == ["killed", "killed", "left"]
        assert cluster.now().keys() == set(added) - removed.keys()
        sent = {(change.author, change.sequence) for change in changes if isinstance(change, MessageSent)}
        hops = [change for change in changes if isinstance(change, MessageHop)]
        sampled = {(hop.author, hop.sequence) for hop in hops}
        assert len(sampled & sent) > len(sampled) / 2 > 0  # an external author, for example, does not report
        assert all(hop.source == hop.author for hop in hops if hop.hops == 1)
        assert any(isinstance(change, Annotation) and "were killed" in change.text for change in changes)

        samples = cluster.samples()
        assert max(sample.latency_p99_ms for sample in samples) > 0
        assert max(sample.redundancy for sample in samples) > 1
        assert cluster.totals.delivered > cluster.totals.sent > 100
        checks = cluster.guarantee_checks
        assert (checks.violation_count, checks.error_count, cluster.dropped_rows) == (0, 0, 0)
    _check_tape(tmp_path)


def _check_tape(directory: Path) -> None:
    """The tape has what the tables need: conversations, identifications, ads."""
    rows = read(directory).to_pylist()
    sent = {(row["author"], row["sequence"]): row for row in rows if row["kind"] == "sent"}
    chat = [row for row in sent.values() if row["topic"] == "chat"]
    replies = [row for row in chat if row["parent_author"] is not None]
    assert {row["group_id"] for row in chat} <= THREADS.keys()
    assert replies
    parents = [sent.get((row["parent_author"], row["parent_sequence"])) for row in replies]
    assert any(parents)  # those of the external peer and of killed peers may be on no tape
    assert all(parent["group_id"] == row["group_id"] for parent, row in zip(parents, replies, strict=True) if parent)
    assert {row["name"] for row in rows if row["kind"] == "identification"} <= set(feed.MEMBER_NAMES)
    assert {(row["name"], row["topic"]) for row in rows if row["kind"] == "ad_impression"} <= set(feed.ADS)
    kinds = {row["kind"] for row in rows}
    assert {"identification", "ad_impression", "joined", "left", "delivered", "link_up", "link_down"} <= kinds
    assert "member_joined" in kinds


@pytest.mark.usefixtures("no_leaks")
async def test_suppressed_delivery_violates_the_order_guarantee() -> None:
    async with LocalCluster.start(ClusterConfig(peers=3, rates=TrafficRates(ticks_per_s=20))) as cluster:
        await cluster.wait_until_grown(TIMEOUT_S)
        await eventually(lambda: cluster.totals.delivered > 50, timeout_s=TIMEOUT_S)
        assert cluster.guarantees()[0].holds
        await cluster.suppress_deliveries(next(iter(cluster.now())))
        await eventually(lambda: not cluster.guarantees()[0].holds, timeout_s=TIMEOUT_S)
        assert "received" in cluster.guarantees()[0].summary
        assert cluster.guarantee_checks.violation_count == 1


@pytest.mark.usefixtures("no_leaks")
async def test_deliveries_missing_at_the_end_are_detected() -> None:
    """No later message shows the gap."""
    async with LocalCluster.start(ClusterConfig(peers=3, rates=NO_TRAFFIC, settle_s=2.0)) as cluster:
        await cluster.wait_until_grown(TIMEOUT_S)
        await cluster.wait_until_delivered(TIMEOUT_S)
        await cluster.suppress_deliveries(next(iter(cluster.now())), count=1_000_000)
        before = cluster.totals.sent
        cluster.set_traffic(TrafficRates(ticks_per_s=20))
        await eventually(lambda: cluster.totals.sent > before + 20, timeout_s=TIMEOUT_S)
        with pytest.raises(ClusterError, match=r"is missing|has nothing from"):
            await cluster.wait_until_delivered(timeout_s=1.0)
        await eventually(lambda: not cluster.guarantees()[1].holds, timeout_s=TIMEOUT_S)


ORPHAN_SCRIPT = """
import asyncio
from broadloom.testing import ClusterConfig, LocalCluster

async def main():
    async with LocalCluster.start(ClusterConfig(peers=3)) as cluster:
        await cluster.wait_until_grown(60)
        print(*(worker.pid for worker in cluster._pool.workers), flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "Ctrl-C"])
def test_workers_exit_when_parent_process_is_killed(number: signal.Signals) -> None:
    with running(ORPHAN_SCRIPT) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 3
        process.send_signal(number)
        process.wait(TIMEOUT_S)
    wait_until(lambda: not any(is_running(pid) for pid in pids), timeout_s=TIMEOUT_S)
