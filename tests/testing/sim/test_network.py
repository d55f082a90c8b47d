"""The virtual network: frames, connections, dials and processes."""

from random import Random
from typing import Any

import pytest

from broadloom.protocol import ChannelName, Tuning
from broadloom.testing.sim.network import SimConnection, SimNetwork, SimNetworkSettings
from broadloom.testing.sim.node import SimNode
from broadloom.testing.sim.step_checker import StepChecker
from broadloom.testing.sim.virtual_clock import VirtualClock
from broadloom.wire import Address, Frame
from broadloom.wire.broadcast_frame import Broadcast, encode_broadcast
from broadloom.wire.exchange_messages import RejectReason

LATENCY_S = 0.01
JITTER_MS = 1e-6
"""Practically none, so that frames take exactly the latency."""
BOTH_WAYS = frozenset({(0, 1), (1, 0)})
CHANNEL = ChannelName.parse("sim/network")


class RecordingHandler:
    """Handler of one end of a connection: records events with their times."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.events: list[tuple[float, Any]] = []

    def on_open(self) -> None:
        self.events.append((self._clock.now, "open"))

    def on_frame(self, frame: Frame) -> None:
        self.events.append((self._clock.now, frame))

    def on_writable(self) -> None:
        self.events.append((self._clock.now, "writable"))

    def on_send_overflow(self) -> None:
        raise AssertionError("the simulated network has no send limit")

    def on_disconnect(self, reason: RejectReason | None = None, foreign: str = "") -> None:
        self.events.append((self._clock.now, "disconnected"))

    @property
    def event_values(self) -> list[Any]:
        return [event for _, event in self.events]

    @property
    def frames(self) -> list[bytes]:
        return [event for event in self.event_values if isinstance(event, bytes)]

    @property
    def times(self) -> list[float]:
        return [time for time, event in self.events if isinstance(event, bytes)]


class RecordingPeer:
    """Accepts connections in place of a peer."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.connections: list[SimConnection] = []
        self.handlers: list[RecordingHandler] = []

    def on_accept(self, connection: SimConnection) -> None:
        connection.handler = handler = RecordingHandler(self._clock)
        self.connections.append(connection)
        self.handlers.append(handler)


class SimpleNetwork:
    """Hosts with one process each, and the connections between them."""

    def __init__(self, seed: int = 1, **settings: Any) -> None:
        latency_ms = LATENCY_S * 1000
        chosen: dict[str, Any] = {"latency_ms": (latency_ms, latency_ms), "jitter_ms": JITTER_MS} | settings
        self.clock = VirtualClock()
        self.network = SimNetwork(self.clock, Random(seed), SimNetworkSettings(**chosen))
        self.checker = StepChecker(self.clock, degree=4, latency_s=0.04)
        self.nodes: list[SimNode] = []

    def node(self, host: str = "") -> SimNode:
        number = len(self.nodes)
        node = SimNode(
            number,
            host or f"h{number}",
            self.clock,
            self.network,
            self.checker,
            seed=number,
            channel=CHANNEL,
            bootstrap=(),
            settings=Tuning(),
        )
        node.peer = RecordingPeer(self.clock)  # type: ignore[assignment]
        self.nodes.append(node)
        return node

    def dial(self, near: SimNode, address: Address) -> tuple[SimConnection, RecordingHandler]:
        handler = RecordingHandler(self.clock)
        return near.dial(address, handler), handler

    def connect(self) -> tuple[SimConnection, RecordingHandler, SimConnection, RecordingHandler]:
        """Connect two new nodes; return both ends with their handlers."""
        near_node, far_node = self.node(), self.node()
        near, near_handler = self.dial(near_node, far_node.address)
        self.run(2 * LATENCY_S + 0.001 if near.latency_s <= LATENCY_S else 10)
        far, far_handler = accepted(far_node)
        assert near_handler.event_values == ["open"]
        near_handler.events.clear()
        return near, near_handler, far, far_handler

    def run(self, seconds: float) -> None:
        self.clock.run_until(self.clock.now + seconds)

    def partition(self, *, one_way: bool = False) -> None:
        """Separate the first host from all others; with `one_way`, only frames to it are held back."""
        self.network.partition({"h0": 1}, frozenset({(0, 1)}) if one_way else BOTH_WAYS)


def accepted(node: SimNode, index: int = 0) -> tuple[SimConnection, RecordingHandler]:
    """Return a connection that this node has accepted, with its handler."""
    listener: Any = node.peer
    return listener.connections[index], listener.handlers[index]


def frame(number: int, size: int = 12) -> bytes:
    return number.to_bytes(size, "big")


FRAMES = [frame(number) for number in range(50)]


# -- frames


@pytest.mark.parametrize("seed", range(5))
def test_frames_arrive_whole_and_in_order_with_any_jitter(seed: int):
    net = SimpleNetwork(seed, jitter_ms=30.0)
    near, _, _, far_handler = net.connect()
    for each in FRAMES:
        near.send(each)
        net.run(0.001)
    net.run(10)
    assert far_handler.frames == FRAMES


def test_both_ends_can_send_at_once():
    net = SimpleNetwork()
    near, near_handler, far, far_handler = net.connect()
    near.send(frame(1))
    far.send(frame(2))
    net.run(1)
    assert (near_handler.event_values, far_handler.event_values) == ([frame(2)], [frame(1)])


@pytest.mark.parametrize("seed", range(20))
def test_latency_is_within_bounds(seed: int):
    net = SimpleNetwork(seed, latency_ms=(5.0, 25.0))
    near, _, _, far_handler = net.connect()
    sent_at = net.clock.now
    near.send(frame(1))
    net.run(1)
    assert 0.005 <= far_handler.times[0] - sent_at <= 0.0251


def test_latency_differs_between_connections():
    net = SimpleNetwork(latency_ms=(5.0, 25.0))
    assert len({net.connect()[0].latency_s for _ in range(10)}) == 10


def test_jitter_only_adds_delay():
    net = SimpleNetwork(jitter_ms=5.0)
    near, _, _, far_handler = net.connect()
    started = net.clock.now
    for number, each in enumerate(FRAMES):
        net.clock.call_at(started + number, near.send, each)
    net.run(100)
    delays = [time - started - number for number, time in enumerate(far_handler.times)]
    assert all(delay >= LATENCY_S - 1e-9 for delay in delays)
    assert 0.001 < sum(delays) / len(delays) - LATENCY_S < 0.02


def test_frames_bytes_and_broadcasts_are_counted():
    net = SimpleNetwork()
    near, *_ = net.connect()
    encoded = encode_broadcast(Broadcast(1, 1, 1, (b"hello",)))
    near.send(frame(1))
    near.send(encoded)
    near.close()
    assert (net.network.frames_sent, net.network.broadcast_frames_sent) == (2, 1)
    assert net.network.bytes_sent == 12 + len(encoded)


# -- dials


def test_dial_is_accepted_after_one_latency_and_open_after_two():
    net = SimpleNetwork()
    here, there = net.node(), net.node()
    _, handler = net.dial(here, there.address)
    assert handler.event_values == []
    net.run(LATENCY_S + 0.001)
    assert len(there.connections) == 1
    assert handler.event_values == []
    net.run(LATENCY_S)
    assert handler.event_values == ["open"]
    assert handler.events[0][0] == pytest.approx(2 * LATENCY_S)


def test_dial_to_closed_port_fails_after_one_round_trip():
    net = SimpleNetwork()
    here, there = net.node(), net.node()
    _, handler = net.dial(here, Address(there.host, 1))
    net.run(60)
    assert handler.event_values == ["disconnected"]
    assert handler.events[0][0] == pytest.approx(2 * LATENCY_S)


def test_dial_to_crashed_process_fails_after_one_round_trip():
    net = SimpleNetwork()
    here, there = net.node(), net.node()
    there.kill()
    _, handler = net.dial(here, there.address)
    net.run(60)
    assert handler.event_values == ["disconnected"]
    assert handler.events[0][0] == pytest.approx(2 * LATENCY_S)


def test_dial_to_crashed_host_times_out():
    net = SimpleNetwork(dial_timeout_s=3.0)
    here, there = net.node(), net.node()
    there.kill(host=True)
    _, handler = net.dial(here, there.address)
    net.run(60)
    assert handler.event_values == ["disconnected"]
    assert handler.events[0][0] == pytest.approx(3.0)


@pytest.mark.parametrize("one_way", [False, True])
@pytest.mark.parametrize("from_first", [False, True])
def test_dial_across_partition_times_out(one_way: bool, from_first: bool):
    """A one-way partition is enough: the answer does not arrive."""
    net = SimpleNetwork(dial_timeout_s=3.0)
    first, second = net.node(), net.node()
    net.partition(one_way=one_way)
    here, there = (first, second) if from_first else (second, first)
    _, handler = net.dial(here, there.address)
    net.run(60)
    assert handler.event_values == ["disconnected"]
    assert handler.events[0][0] == pytest.approx(3.0)
    assert not there.connections


def test_dial_within_one_side_of_partition_succeeds():
    net = SimpleNetwork()
    net.node()
    here, there = net.node(), net.node()
    net.partition()
    _, handler = net.dial(here, there.address)
    net.run(1)
    assert handler.event_values == ["open"]


def test_canceled_dial_reports_nothing():
    net = SimpleNetwork()
    here, there = net.node(), net.node()
    connection, handler = net.dial(here, there.address)
    connection.close()
    net.run(60)
    assert handler.event_values == []


def test_freed_port_is_reused():
    net = SimpleNetwork()
    first, second = net.node("h0"), net.node("h0")
    assert first.address != second.address
    first.kill()
    assert net.node("h0").address == first.address


# -- closing


def test_close_arrives_after_all_sent_frames():
    net = SimpleNetwork(jitter_ms=20.0)
    near, near_handler, _, far_handler = net.connect()
    for each in FRAMES:
        near.send(each)
    near.close()
    near.send(b"sent too late!!!")
    net.run(10)
    assert far_handler.event_values == [*FRAMES, "disconnected"]
    assert near_handler.event_values == []


def test_closed_end_receives_nothing():
    net = SimpleNetwork()
    near, near_handler, far, _ = net.connect()
    far.send(frame(1))
    near.close()
    net.run(1)
    assert near_handler.event_values == []


def test_both_ends_can_close():
    net = SimpleNetwork()
    near, near_handler, far, far_handler = net.connect()
    near.close()
    far.close()
    net.run(1)
    assert near_handler.event_values == far_handler.event_values == []
    assert not net.nodes[0].connections
    assert not net.nodes[1].connections


def test_disconnect_is_reported_once():
    net = SimpleNetwork()
    near, _, _, far_handler = net.connect()
    near.close()
    near.reset()
    net.run(10)
    assert far_handler.event_values == ["disconnected"]


def test_reset_loses_only_a_tail_of_frames():
    lost = set()
    for seed in range(40):
        net = SimpleNetwork(seed, jitter_ms=20.0)
        near, _, _, far_handler = net.connect()
        for each in FRAMES:
            near.send(each)
        near.reset()
        net.run(10)
        frames = far_handler.frames
        assert far_handler.event_values == [*frames, "disconnected"]
        assert frames == FRAMES[: len(frames)]
        lost.add(len(FRAMES) - len(frames))
    assert len(lost) > 1, "the lost tail should vary"
    assert max(lost) > 0


def test_crashing_process_resets_its_connections():
    net = SimpleNetwork()
    near, near_handler, _, far_handler = net.connect()
    net.nodes[0].kill()
    near.send(frame(1))
    net.run(1)
    assert far_handler.event_values == ["disconnected"]
    assert near_handler.event_values == []


def test_crashing_host_sends_nothing():
    net = SimpleNetwork()
    _, _, far, far_handler = net.connect()
    net.nodes[0].kill(host=True)
    far.send(frame(1))
    net.run(600)
    assert far_handler.event_values == []


def test_crashed_process_receives_nothing_and_fires_no_timers():
    net = SimpleNetwork()
    _, near_handler, far, _ = net.connect()
    fired: list[str] = []
    net.nodes[0].call_later(1.0, fired.append, "timer")
    far.send(frame(1))
    net.nodes[0].kill()
    net.run(10)
    assert near_handler.event_values == []
    assert fired == []


def test_stopped_process_closes_gracefully():
    net = SimpleNetwork()
    near, _, _, far_handler = net.connect()
    near.send(frame(1))
    net.nodes[0].stop()
    net.run(1)
    assert far_handler.event_values == [frame(1), "disconnected"]


# -- paused and slow processes


def test_paused_process_runs_its_timers_and_then_reads_in_order():
    net = SimpleNetwork()
    near, near_handler, _, far_handler = net.connect()
    node = net.nodes[1]
    fired: list[int] = []
    node.pause()
    node.call_later(0.5, lambda: fired.append(len(far_handler.frames)))
    for each in FRAMES[:5]:
        near.send(each)
    net.run(1)
    for each in FRAMES[5:10]:
        near.send(each)
    near.close()
    net.run(1)
    assert far_handler.event_values == []
    assert fired == []
    node.resume()
    net.run(1)
    assert far_handler.event_values == [*FRAMES[:10], "disconnected"]
    assert fired == [0], "before anything was read, as in uvloop"
    assert near_handler.event_values == []


def test_frame_that_arrives_on_resume_is_queued_behind_backlog():
    net = SimpleNetwork()
    near, _, _, far_handler = net.connect()
    node = net.nodes[1]
    node.pause()
    for each in FRAMES[:10]:
        near.send(each)
    net.run(LATENCY_S * 2)
    near.send(FRAMES[10])
    resumed_at = net.clock.now + LATENCY_S  # the moment at which the next frame arrives
    net.clock.call_at(resumed_at, node.resume)
    net.run(1)
    assert far_handler.frames == FRAMES[:11]


def test_process_can_be_paused_again_during_catch_up():
    net = SimpleNetwork()
    near, _, _, far_handler = net.connect()
    node = net.nodes[1]
    node.frame_cost_s = 0.1
    for each in FRAMES[:4]:
        near.send(each)
    net.run(0.15 + LATENCY_S)
    assert far_handler.frames == FRAMES[:1]
    node.pause()
    net.run(1)
    assert far_handler.frames == FRAMES[:1]
    node.resume()
    net.run(1)
    assert far_handler.frames == FRAMES[:4]


def test_paused_process_accepts_dials_on_resume():
    net = SimpleNetwork()
    here, there = net.node(), net.node()
    there.pause()
    connection, handler = net.dial(here, there.address)
    net.run(1)
    assert handler.event_values == ["open"], "the operating system completes the handshake"
    connection.send(frame(1))
    net.run(1)
    there.resume()
    net.run(1)
    assert accepted(there)[1].event_values == [frame(1)]


def test_process_killed_while_paused_drops_its_backlog():
    net = SimpleNetwork()
    near, _, _, far_handler = net.connect()
    node = net.nodes[1]
    node.pause()
    near.send(frame(1))
    net.run(1)
    node.kill()
    node.resume()
    net.run(1)
    assert far_handler.event_values == []


def test_slow_process_delays_each_frame():
    net = SimpleNetwork()
    near, _, _, far_handler = net.connect()
    net.nodes[1].frame_cost_s = 0.1
    started = net.clock.now + LATENCY_S
    for each in FRAMES[:5]:
        near.send(each)
    net.run(10)
    assert far_handler.frames == FRAMES[:5]
    assert far_handler.times == [pytest.approx(started + 0.1 * count, abs=1e-3) for count in range(1, 6)]


def test_slow_process_shares_time_among_connections():
    net = SimpleNetwork()
    near, _, _, far_handler = net.connect()
    third, slow = net.node(), net.nodes[1]
    other, _ = net.dial(third, slow.address)
    net.run(1)
    slow.frame_cost_s = 0.1
    started = net.clock.now + LATENCY_S
    for number in range(3):
        near.send(frame(number))
        other.send(frame(number))
    net.run(10)
    assert max(far_handler.times + accepted(slow, 1)[1].times) == pytest.approx(started + 0.6, abs=1e-3)


# -- bandwidth


def test_limited_upload_sends_frames_one_by_one():
    net = SimpleNetwork()
    near, _, _, far_handler = net.connect()
    net.nodes[0].bytes_per_s = 1000.0
    started = net.clock.now
    for number in range(4):
        near.send(frame(number, size=100))
    net.run(10)
    assert far_handler.times == [pytest.approx(started + LATENCY_S + 0.1 * count, abs=1e-6) for count in range(1, 5)]


def test_upload_is_shared_among_connections_of_host():
    net = SimpleNetwork()
    near, _, _, far_handler = net.connect()
    here, third = net.nodes[0], net.node()
    other, _ = net.dial(here, third.address)
    net.run(1)
    here.bytes_per_s = 1000.0
    started = net.clock.now
    near.send(frame(1, size=500))
    other.send(frame(2, size=500))
    net.run(10)
    assert far_handler.times == [pytest.approx(started + LATENCY_S + 0.5, abs=1e-6)]
    assert accepted(third)[1].times == [pytest.approx(started + LATENCY_S + 1.0, abs=1e-6)]


def test_idle_upload_does_not_accumulate():
    net = SimpleNetwork()
    near, _, _, far_handler = net.connect()
    net.nodes[0].bytes_per_s = 1000.0
    net.run(100)
    started = net.clock.now
    near.send(frame(1, size=1000))
    net.run(10)
    assert far_handler.times == [pytest.approx(started + LATENCY_S + 1.0, abs=1e-6)]


# -- partitions


def test_partition_holds_frames_and_heal_releases_them_in_order():
    net = SimpleNetwork(jitter_ms=20.0)
    near, near_handler, far, far_handler = net.connect()
    net.partition()
    for each in FRAMES:
        near.send(each)
        far.send(each)
    net.run(100)
    assert near_handler.event_values == far_handler.event_values == []
    net.network.heal()
    near.send(b"after the partition")
    net.run(10)
    assert far_handler.frames == [*FRAMES, b"after the partition"]
    assert near_handler.frames == FRAMES


def test_frame_in_flight_arrives_despite_partition():
    net = SimpleNetwork()
    near, _, _, far_handler = net.connect()
    near.send(frame(1))
    net.partition()
    net.run(1)
    assert far_handler.frames == [frame(1)]


def test_partition_holds_close_back():
    net = SimpleNetwork()
    near, _, _, far_handler = net.connect()
    net.partition()
    near.send(frame(1))
    near.close()
    net.run(100)
    assert far_handler.event_values == []
    net.network.heal()
    net.run(1)
    assert far_handler.event_values == [frame(1), "disconnected"]


def test_crash_across_partition_is_not_noticed():
    net = SimpleNetwork()
    _, _, _, far_handler = net.connect()
    net.partition()
    net.nodes[0].kill()
    net.run(100)
    assert far_handler.event_values == []


@pytest.mark.parametrize("one_way", [False, True])
def test_reset_across_partition_is_noticed_when_something_is_sent_afterwards(one_way: bool):
    """As in TCP: the host answers with another reset."""
    net = SimpleNetwork()
    far, far_handler, near, _ = net.connect()
    net.partition(one_way=one_way)
    near.reset()
    far.send(frame(1))
    net.run(10)
    assert far_handler.event_values == []
    net.network.heal()
    far.send(frame(2))
    net.run(1)
    assert far_handler.event_values == ["disconnected"]


def test_one_way_partition_holds_one_direction():
    net = SimpleNetwork()
    near, near_handler, far, far_handler = net.connect()
    net.partition(one_way=True)
    near.send(frame(1))
    far.send(frame(2))
    net.run(1)
    assert far_handler.frames == [frame(1)]
    assert near_handler.frames == []
    net.network.heal()
    net.run(1)
    assert near_handler.frames == [frame(2)]


def test_connection_within_one_side_is_unaffected():
    net = SimpleNetwork()
    net.node()
    here, there = net.node(), net.node()
    connection, _ = net.dial(here, there.address)
    net.run(1)
    net.partition()
    connection.send(frame(1))
    net.run(1)
    assert accepted(there)[1].frames == [frame(1)]


def test_second_partition_holds_frames_again():
    net = SimpleNetwork()
    near, _, _, far_handler = net.connect()
    net.partition()
    near.send(frame(1))
    net.network.heal()
    net.partition()
    near.send(frame(2))
    net.run(1)
    assert far_handler.frames == [frame(1)]
    net.network.heal()
    net.run(1)
    assert far_handler.frames == [frame(1), frame(2)]
