"""The virtual network itself: what becomes of frames, lines, calls and processes."""

from random import Random
from typing import Any

import pytest

from broadloom.protocol import ChannelName, Tuning
from broadloom.testing.sim.network import SimConnection, SimNetwork, SimNetworkSettings
from broadloom.testing.sim.node import SimNode
from broadloom.testing.sim.step_checker import StepChecker
from broadloom.testing.sim.virtual_clock import VirtualClock
from broadloom.wire import Address
from broadloom.wire.broadcast_frame import Broadcast, encode_broadcast
from broadloom.wire.exchange_messages import RejectReason

LATENCY_S = 0.01
JITTER_MS = 1e-6
"""As good as none: where the moment matters, a line takes exactly its latency."""
BOTH_WAYS = frozenset({(0, 1), (1, 0)})
CHANNEL = ChannelName.parse("sim/network")


class RecordingHandler:
    """Owner of one end of a line: notes what it is told, and when."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.events: list[tuple[float, Any]] = []

    def on_open(self) -> None:
        self.events.append((self._clock.now, "open"))

    def on_frame(self, frame: bytes) -> None:
        self.events.append((self._clock.now, frame))

    def on_writable(self) -> None:
        self.events.append((self._clock.now, "room"))

    def on_send_overflow(self) -> None:
        raise AssertionError("the simulated network has no limit")

    def on_disconnect(self, reason: RejectReason | None = None) -> None:
        self.events.append((self._clock.now, "lost"))

    @property
    def event_values(self) -> list[Any]:
        return [what for _, what in self.events]

    @property
    def frames(self) -> list[bytes]:
        return [what for what in self.event_values if isinstance(what, bytes)]

    @property
    def times(self) -> list[float]:
        return [time for time, what in self.events if isinstance(what, bytes)]


class RecordingPeer:
    """Takes calls in place of a peer."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.connections: list[SimConnection] = []
        self.handlers: list[RecordingHandler] = []

    def on_accept(self, connection: SimConnection) -> None:
        connection.handler = handler = RecordingHandler(self._clock)
        self.connections.append(connection)
        self.handlers.append(handler)


class SimpleNetwork:
    """Some hosts of one process each, and the lines between them."""

    def __init__(self, seed: int = 1, **settings: Any) -> None:
        latency_ms = LATENCY_S * 1000
        chosen: dict[str, Any] = {"latency_ms": (latency_ms, latency_ms), "jitter_ms": JITTER_MS} | settings
        self.clock = VirtualClock()
        self.network = SimNetwork(self.clock, Random(seed), SimNetworkSettings(**chosen))
        self.checker = StepChecker(self.clock, degree=4)
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
        """An open line between two new nodes: both its ends, and what they hear from now on."""
        near_node, far_node = self.node(), self.node()
        near, near_end = self.dial(near_node, far_node.address)
        self.run(2 * LATENCY_S + 0.001 if near.latency_s <= LATENCY_S else 10)
        far, far_end = accepted(far_node)
        assert near_end.event_values == ["open"]
        near_end.events.clear()
        return near, near_end, far, far_end

    def run(self, seconds: float) -> None:
        self.clock.run_until(self.clock.now + seconds)

    def partition(self, *, one_way: bool = False) -> None:
        """The first host on one side, all others on the other; one way, nothing reaches the first."""
        self.network.partition({"h0": 1}, frozenset({(0, 1)}) if one_way else BOTH_WAYS)


def accepted(node: SimNode, index: int = 0) -> tuple[SimConnection, RecordingHandler]:
    """A call that this node has answered."""
    listener: Any = node.peer
    return listener.connections[index], listener.handlers[index]


def frame(number: int, size: int = 12) -> bytes:
    return number.to_bytes(size, "big")


FRAMES = [frame(number) for number in range(50)]


# -- frames


@pytest.mark.parametrize("seed", range(5))
def test_frames_arrive_whole_and_in_order_whatever_the_jitter(seed: int):
    wired = SimpleNetwork(seed, jitter_ms=30.0)
    near, _, _, far_end = wired.connect()
    for each in FRAMES:
        near.send(each)
        wired.run(0.001)
    wired.run(10)
    assert far_end.frames == FRAMES


def test_both_ends_can_speak_at_once():
    wired = SimpleNetwork()
    near, near_end, far, far_end = wired.connect()
    near.send(frame(1))
    far.send(frame(2))
    wired.run(1)
    assert (near_end.event_values, far_end.event_values) == ([frame(2)], [frame(1)])


@pytest.mark.parametrize("seed", range(20))
def test_latency_lies_between_its_bounds(seed: int):
    wired = SimpleNetwork(seed, latency_ms=(5.0, 25.0))
    near, _, _, far_end = wired.connect()
    sent_at = wired.clock.now
    near.send(frame(1))
    wired.run(1)
    assert 0.005 <= far_end.times[0] - sent_at <= 0.0251


def test_latency_differs_from_line_to_line():
    wired = SimpleNetwork(latency_ms=(5.0, 25.0))
    assert len({wired.connect()[0].latency_s for _ in range(10)}) == 10


def test_jitter_only_adds():
    wired = SimpleNetwork(jitter_ms=5.0)
    near, _, _, far_end = wired.connect()
    started = wired.clock.now
    for number, each in enumerate(FRAMES):
        wired.clock.call_at(started + number, near.send, each)
    wired.run(100)
    delays = [time - started - number for number, time in enumerate(far_end.times)]
    assert all(delay >= LATENCY_S - 1e-9 for delay in delays)
    assert 0.001 < sum(delays) / len(delays) - LATENCY_S < 0.02


def test_frames_and_bytes_and_copies_are_counted():
    wired = SimpleNetwork()
    near, *_ = wired.connect()
    made = encode_broadcast(Broadcast(1, 1, 1, (b"hello",)))
    near.send(frame(1))
    near.send(made)
    near.close()
    assert (wired.network.frames_sent, wired.network.broadcast_frames_sent) == (2, 1)
    assert wired.network.bytes_sent == 12 + len(made)


# -- calls


def test_a_call_is_answered_after_one_way_and_open_after_two():
    wired = SimpleNetwork()
    here, there = wired.node(), wired.node()
    _, end = wired.dial(here, there.address)
    assert end.event_values == []
    wired.run(LATENCY_S + 0.001)
    assert len(there.connections) == 1
    assert end.event_values == []
    wired.run(LATENCY_S)
    assert end.event_values == ["open"]
    assert end.events[0][0] == pytest.approx(2 * LATENCY_S)


def test_a_call_to_a_closed_port_is_refused_at_once():
    wired = SimpleNetwork()
    here, there = wired.node(), wired.node()
    _, end = wired.dial(here, Address(there.host, 1))
    wired.run(60)
    assert end.event_values == ["lost"]
    assert end.events[0][0] == pytest.approx(2 * LATENCY_S)


def test_a_call_to_a_dead_process_is_refused_at_once():
    wired = SimpleNetwork()
    here, there = wired.node(), wired.node()
    there.kill()
    _, end = wired.dial(here, there.address)
    wired.run(60)
    assert end.event_values == ["lost"]
    assert end.events[0][0] == pytest.approx(2 * LATENCY_S)


def test_a_call_to_a_dead_host_is_given_up_after_a_while():
    wired = SimpleNetwork(dial_timeout_s=3.0)
    here, there = wired.node(), wired.node()
    there.kill(host=True)
    _, end = wired.dial(here, there.address)
    wired.run(60)
    assert end.event_values == ["lost"]
    assert end.events[0][0] == pytest.approx(3.0)


@pytest.mark.parametrize("one_way", [False, True])
@pytest.mark.parametrize("from_first", [False, True])
def test_a_call_through_a_split_is_given_up_after_a_while(one_way: bool, from_first: bool):
    """One way is as bad as both: the answer does not come."""
    wired = SimpleNetwork(dial_timeout_s=3.0)
    first, second = wired.node(), wired.node()
    wired.partition(one_way=one_way)
    here, there = (first, second) if from_first else (second, first)
    _, end = wired.dial(here, there.address)
    wired.run(60)
    assert end.event_values == ["lost"]
    assert end.events[0][0] == pytest.approx(3.0)
    assert not there.connections


def test_a_call_within_one_side_of_a_split_is_answered():
    wired = SimpleNetwork()
    wired.node()
    here, there = wired.node(), wired.node()
    wired.partition()
    _, end = wired.dial(here, there.address)
    wired.run(1)
    assert end.event_values == ["open"]


def test_a_caller_that_hung_up_hears_nothing_more():
    wired = SimpleNetwork()
    here, there = wired.node(), wired.node()
    line, end = wired.dial(here, there.address)
    line.close()
    wired.run(60)
    assert end.event_values == []


def test_a_freed_port_is_taken_by_the_next():
    wired = SimpleNetwork()
    first, second = wired.node("h0"), wired.node("h0")
    assert first.address != second.address
    first.kill()
    assert wired.node("h0").address == first.address


# -- the end of a line


def test_closing_is_told_after_all_that_was_sent():
    wired = SimpleNetwork(jitter_ms=20.0)
    near, near_end, _, far_end = wired.connect()
    for each in FRAMES:
        near.send(each)
    near.close()
    near.send(b"said too late!!!")
    wired.run(10)
    assert far_end.event_values == [*FRAMES, "lost"]
    assert near_end.event_values == []


def test_after_its_own_close_an_end_hears_nothing():
    wired = SimpleNetwork()
    near, near_end, far, _ = wired.connect()
    far.send(frame(1))
    near.close()
    wired.run(1)
    assert near_end.event_values == []


def test_both_may_close():
    wired = SimpleNetwork()
    near, near_end, far, far_end = wired.connect()
    near.close()
    far.close()
    wired.run(1)
    assert near_end.event_values == far_end.event_values == []
    assert not wired.nodes[0].connections
    assert not wired.nodes[1].connections


def test_the_end_of_a_line_is_told_once():
    wired = SimpleNetwork()
    near, _, _, far_end = wired.connect()
    near.close()
    near.reset()
    wired.run(10)
    assert far_end.event_values == ["lost"]


def test_a_reset_may_lose_a_tail_but_nothing_in_between():
    lost = set()
    for seed in range(40):
        wired = SimpleNetwork(seed, jitter_ms=20.0)
        near, _, _, far_end = wired.connect()
        for each in FRAMES:
            near.send(each)
        near.reset()
        wired.run(10)
        frames = far_end.frames
        assert far_end.event_values == [*frames, "lost"]
        assert frames == FRAMES[: len(frames)]
        lost.add(len(FRAMES) - len(frames))
    assert len(lost) > 1, "the tail should not always be the same"
    assert max(lost) > 0


def test_a_dying_process_resets_its_lines():
    wired = SimpleNetwork()
    near, near_end, _, far_end = wired.connect()
    wired.nodes[0].kill()
    near.send(frame(1))
    wired.run(1)
    assert far_end.event_values == ["lost"]
    assert near_end.event_values == []


def test_a_dying_host_says_nothing():
    wired = SimpleNetwork()
    _, _, far, far_end = wired.connect()
    wired.nodes[0].kill(host=True)
    far.send(frame(1))
    wired.run(600)
    assert far_end.event_values == []


def test_a_dead_process_hears_nothing_and_its_timers_are_silent():
    wired = SimpleNetwork()
    _, near_end, far, _ = wired.connect()
    fired: list[str] = []
    wired.nodes[0].call_later(1.0, fired.append, "timer")
    far.send(frame(1))
    wired.nodes[0].kill()
    wired.run(10)
    assert near_end.event_values == []
    assert fired == []


def test_a_process_that_retires_closes_in_good_order():
    wired = SimpleNetwork()
    near, _, _, far_end = wired.connect()
    near.send(frame(1))
    wired.nodes[0].stop()
    wired.run(1)
    assert far_end.event_values == [frame(1), "lost"]


# -- frozen and slow processes


def test_a_frozen_process_does_everything_later_and_in_order():
    wired = SimpleNetwork()
    near, near_end, _, far_end = wired.connect()
    node = wired.nodes[1]
    fired: list[int] = []
    node.pause()
    node.call_later(0.5, lambda: fired.append(len(far_end.frames)))
    for each in FRAMES[:5]:
        near.send(each)
    wired.run(1)
    for each in FRAMES[5:10]:
        near.send(each)
    near.close()
    wired.run(1)
    assert far_end.event_values == []
    assert fired == []
    node.resume()
    wired.run(1)
    assert far_end.event_values == [*FRAMES[:10], "lost"]
    assert fired == [5], "the timer was due between the first five frames and the others"
    assert near_end.event_values == []


def test_what_comes_while_the_thawed_works_up_its_backlog_comes_behind_it():
    wired = SimpleNetwork()
    near, _, _, far_end = wired.connect()
    node = wired.nodes[1]
    node.pause()
    for each in FRAMES[:10]:
        near.send(each)
    wired.run(LATENCY_S * 2)
    near.send(FRAMES[10])
    thawed_at = wired.clock.now + LATENCY_S  # the very moment at which the next frame comes
    wired.clock.call_at(thawed_at, node.resume)
    wired.run(1)
    assert far_end.frames == FRAMES[:11]


def test_a_frozen_process_can_be_frozen_again_before_it_is_done():
    wired = SimpleNetwork()
    near, _, _, far_end = wired.connect()
    node = wired.nodes[1]
    node.frame_cost_s = 0.1
    for each in FRAMES[:4]:
        near.send(each)
    wired.run(0.15 + LATENCY_S)
    assert far_end.frames == FRAMES[:1]
    node.pause()
    wired.run(1)
    assert far_end.frames == FRAMES[:1]
    node.resume()
    wired.run(1)
    assert far_end.frames == FRAMES[:4]


def test_a_frozen_process_answers_calls_when_it_is_thawed():
    wired = SimpleNetwork()
    here, there = wired.node(), wired.node()
    there.pause()
    line, end = wired.dial(here, there.address)
    wired.run(1)
    assert end.event_values == ["open"], "the host answers for it"
    line.send(frame(1))
    wired.run(1)
    there.resume()
    wired.run(1)
    assert accepted(there)[1].event_values == [frame(1)]


def test_a_process_killed_while_frozen_never_does_what_it_had_to():
    wired = SimpleNetwork()
    near, _, _, far_end = wired.connect()
    node = wired.nodes[1]
    node.pause()
    near.send(frame(1))
    wired.run(1)
    node.kill()
    node.resume()
    wired.run(1)
    assert far_end.event_values == []


def test_a_slow_process_takes_its_time_for_each_frame():
    wired = SimpleNetwork()
    near, _, _, far_end = wired.connect()
    wired.nodes[1].frame_cost_s = 0.1
    started = wired.clock.now + LATENCY_S
    for each in FRAMES[:5]:
        near.send(each)
    wired.run(10)
    assert far_end.frames == FRAMES[:5]
    assert far_end.times == [pytest.approx(started + 0.1 * count, abs=1e-3) for count in range(1, 6)]


def test_a_slow_process_shares_its_time_among_its_lines():
    wired = SimpleNetwork()
    near, _, _, far_end = wired.connect()
    third, slow = wired.node(), wired.nodes[1]
    other, _ = wired.dial(third, slow.address)
    wired.run(1)
    slow.frame_cost_s = 0.1
    started = wired.clock.now + LATENCY_S
    for number in range(3):
        near.send(frame(number))
        other.send(frame(number))
    wired.run(10)
    assert max(far_end.times + accepted(slow, 1)[1].times) == pytest.approx(started + 0.6, abs=1e-3)


# -- bandwidth


def test_a_host_with_little_upload_sends_one_frame_after_the_other():
    wired = SimpleNetwork()
    near, _, _, far_end = wired.connect()
    wired.nodes[0].bytes_per_s = 1000.0
    started = wired.clock.now
    for number in range(4):
        near.send(frame(number, size=100))
    wired.run(10)
    assert far_end.times == [pytest.approx(started + LATENCY_S + 0.1 * count, abs=1e-6) for count in range(1, 5)]


def test_upload_is_shared_among_all_lines_of_a_host():
    wired = SimpleNetwork()
    near, _, _, far_end = wired.connect()
    here, third = wired.nodes[0], wired.node()
    other, _ = wired.dial(here, third.address)
    wired.run(1)
    here.bytes_per_s = 1000.0
    started = wired.clock.now
    near.send(frame(1, size=500))
    other.send(frame(2, size=500))
    wired.run(10)
    assert far_end.times == [pytest.approx(started + LATENCY_S + 0.5, abs=1e-6)]
    assert accepted(third)[1].times == [pytest.approx(started + LATENCY_S + 1.0, abs=1e-6)]


def test_an_idle_uplink_saves_nothing_up():
    wired = SimpleNetwork()
    near, _, _, far_end = wired.connect()
    wired.nodes[0].bytes_per_s = 1000.0
    wired.run(100)
    started = wired.clock.now
    near.send(frame(1, size=1000))
    wired.run(10)
    assert far_end.times == [pytest.approx(started + LATENCY_S + 1.0, abs=1e-6)]


# -- splits


def test_a_split_holds_frames_and_healing_releases_them_in_order():
    wired = SimpleNetwork(jitter_ms=20.0)
    near, near_end, far, far_end = wired.connect()
    wired.partition()
    for each in FRAMES:
        near.send(each)
        far.send(each)
    wired.run(100)
    assert near_end.event_values == far_end.event_values == []
    wired.network.heal()
    near.send(b"after the split")
    wired.run(10)
    assert far_end.frames == [*FRAMES, b"after the split"]
    assert near_end.frames == FRAMES


def test_what_was_under_way_when_the_split_came_arrives():
    wired = SimpleNetwork()
    near, _, _, far_end = wired.connect()
    near.send(frame(1))
    wired.partition()
    wired.run(1)
    assert far_end.frames == [frame(1)]


def test_the_close_of_a_line_is_held_back_too():
    wired = SimpleNetwork()
    near, _, _, far_end = wired.connect()
    wired.partition()
    near.send(frame(1))
    near.close()
    wired.run(100)
    assert far_end.event_values == []
    wired.network.heal()
    wired.run(1)
    assert far_end.event_values == [frame(1), "lost"]


def test_a_death_behind_a_split_is_not_heard_of():
    wired = SimpleNetwork()
    _, _, _, far_end = wired.connect()
    wired.partition()
    wired.nodes[0].kill()
    wired.run(100)
    assert far_end.event_values == []


def test_a_split_one_way_holds_only_frames_of_that_way():
    wired = SimpleNetwork()
    near, near_end, far, far_end = wired.connect()
    wired.partition(one_way=True)
    near.send(frame(1))
    far.send(frame(2))
    wired.run(1)
    assert far_end.frames == [frame(1)]
    assert near_end.frames == []
    wired.network.heal()
    wired.run(1)
    assert near_end.frames == [frame(2)]


def test_lines_within_a_side_are_as_always():
    wired = SimpleNetwork()
    wired.node()
    here, there = wired.node(), wired.node()
    line, _ = wired.dial(here, there.address)
    wired.run(1)
    wired.partition()
    line.send(frame(1))
    wired.run(1)
    assert accepted(there)[1].frames == [frame(1)]


def test_a_second_split_holds_what_the_first_held():
    wired = SimpleNetwork()
    near, _, _, far_end = wired.connect()
    wired.partition()
    near.send(frame(1))
    wired.network.heal()
    wired.partition()
    near.send(frame(2))
    wired.run(1)
    assert far_end.frames == [frame(1)]
    wired.network.heal()
    wired.run(1)
    assert far_end.frames == [frame(1), frame(2)]
