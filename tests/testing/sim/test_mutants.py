"""Mutation tests of the checks: break each guarantee on purpose; the simulator must detect it.

Every mutant changes one thing in the protocol. The history without the mutant keeps all guarantees; the same history
with it must raise `GuaranteeViolation` with the number of the guarantee, the peer and the message.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from broadloom.protocol.broadcast.anti_entropy import AntiEntropy
from broadloom.protocol.broadcast.broadcaster import Broadcaster
from broadloom.protocol.broadcast.gap_repair import GapRepair
from broadloom.protocol.broadcast.receiver import Receiver
from broadloom.protocol.broadcast.retention import RetainedFrame
from broadloom.protocol.events import Batch, Missed, PeerState, StateChanged
from broadloom.protocol.link import Link
from broadloom.protocol.membership.discovery import Discovery
from broadloom.protocol.membership.join import JoinProtocol
from broadloom.protocol.membership.leave import LeaveProtocol
from broadloom.protocol.membership.neighbor_lists import TwoHopView
from broadloom.protocol.membership.partitions import Beacons, PartitionMerge
from broadloom.protocol.membership.repair import SlotRepair
from broadloom.protocol.membership.slots import SlotTable
from broadloom.protocol.peer import Peer
from broadloom.testing.sim.node import SimNode
from broadloom.testing.sim.scenario import Scenario, parse
from broadloom.testing.sim.step_checker import GuaranteeViolation
from broadloom.testing.sim.steps import Run
from broadloom.wire.broadcast_frame import read_header
from broadloom.wire.exchange_messages import RejectReason

PEER = r"peer \d+"
MESSAGE = r"[0-9a-f]{16}#\d+"
CONVERGE = {"do": "converge", "timeout_s": 30}
TRAFFIC = [{"do": "traffic", "per_s": 20}, {"do": "wait", "duration_s": 3}]
GROWN = [{"do": "grow", "timeout_s": 30}]

SCENARIOS: dict[str, dict[str, Any]] = {
    "traffic": {"peers": 20, "step": [*GROWN, *TRAFFIC, CONVERGE]},
    "long traffic": {
        "peers": 12,
        "peer": {"retention_s": 8},
        "step": [*GROWN, *TRAFFIC, {"do": "wait", "duration_s": 15}, CONVERGE],
    },
    "kill": {
        "peers": 24,
        "step": [*GROWN, *TRAFFIC, {"do": "kill", "fraction": 0.25}, {"do": "wait", "duration_s": 3}, CONVERGE],
    },
    "leave": {
        "peers": 24,
        "step": [
            *GROWN,
            {"do": "wait", "duration_s": 12},
            *TRAFFIC,
            {"do": "leave", "count": 8},
            {"do": "wait", "duration_s": 1},
            CONVERGE,
        ],
    },
    "kill-most": {"peers": 60, "step": [*GROWN, {"do": "kill", "fraction": 0.8}, {"do": "converge", "timeout_s": 60}]},
    "joiners": {
        "peers": 12,
        "step": [
            *GROWN,
            *TRAFFIC,
            {"do": "churn", "fraction_per_min": 9, "minutes": 0.1},
            {"do": "wait", "duration_s": 3},
            CONVERGE,
        ],
    },
    "partition": {
        "peers": 24,
        "step": [
            *GROWN,
            *TRAFFIC,
            {"do": "partition"},
            {"do": "wait", "duration_s": 15},
            {"do": "traffic", "per_s": 0},
            {"do": "heal"},
            CONVERGE,
        ],
    },
    "long partition": {
        # Longer than the retention time: the messages of the other side are unavailable and must be reported.
        "peers": 12,
        "peer": {"retention_s": 8},
        "step": [
            *GROWN,
            *TRAFFIC,
            {"do": "partition"},
            {"do": "wait", "duration_s": 13},
            {"do": "heal"},
            {"do": "wait", "duration_s": 10},
            {**CONVERGE, "allow_missed": True},
        ],
    },
    "quiescent": {
        "peers": 20,
        "step": [*GROWN, {"do": "quiesce", "timeout_s": 60}, {"do": "measure_redundancy", "broadcasts": 2}],
    },
}


def scenario(name: str) -> Scenario:
    return parse(name, SCENARIOS[name])


@cache
def run_unchanged(name: str, seed: int) -> Run:
    """Run the history without a mutant."""
    return scenario(name).run(seed)


@pytest.fixture
def assert_caught(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that replaces methods by mutants and expects the history to violate a guarantee."""

    def check(
        name: str,
        mutants: dict[tuple[type[Any], str], Any],
        guarantee: int | tuple[int, ...],
        text: str,
        seed: int = 0,
    ) -> None:
        run_unchanged(name, seed)
        for (owner, method), mutant in mutants.items():
            assert method in vars(owner), f"{owner.__name__} has no {method} to replace"
            monkeypatch.setattr(owner, method, mutant)
        with pytest.raises(GuaranteeViolation) as violation:
            scenario(name).run(seed)
        found = str(violation.value)
        numbers = (guarantee,) if isinstance(guarantee, int) else guarantee
        assert found.startswith(tuple(f"guarantee {number}, at " for number in numbers)), found
        assert re.search(text, found), found

    return check


def do_nothing(*_args: Any, **_options: Any) -> None:
    """A mutant that leaves something out."""


# -- 1: every message exactly once, in order per author


def test_message_delivered_twice_is_detected(assert_caught: Callable[..., None]):
    original = Receiver._deliver

    def mutant(self: Receiver, window: Any, message: Any, age_ms: float) -> None:
        original(self, window, message, age_ms)
        if message.sequence == 2:
            window.last_contiguous = 1
            original(self, window, message, age_ms)

    assert_caught("traffic", {(Receiver, "_deliver"): mutant}, 1, f"{PEER} .*received {MESSAGE} twice")


def test_unrecognized_duplicate_is_detected(assert_caught: Callable[..., None]):
    original = Receiver.on_broadcast

    def mutant(self: Receiver, link: Link, frame: bytes) -> None:
        marks = {author: window.last_contiguous for author, window in self.windows.items()}
        original(self, link, frame)
        for author, mark in marks.items():
            if self.windows[author].last_contiguous > max(mark, 2):
                self.windows[author].last_contiguous = mark  # forgets what it has delivered

    assert_caught("traffic", {(Receiver, "on_broadcast"): mutant}, 1, f"{PEER} .*received {MESSAGE} twice")


def test_messages_out_of_author_order_are_detected(assert_caught: Callable[..., None]):
    def mutant(self: Receiver, window: Any, message: Any, _age_ms: float) -> None:
        """The second frame waits for the third."""
        batch = Batch(message.author, message.sequence, message.messages, message.hops)
        is_second, waited = window.last_contiguous == 1, held.pop((self, message.author), None)
        window.last_contiguous = message.last_sequence
        if is_second:
            held[self, message.author] = batch
        else:
            self._peer.runtime.deliver(batch)
        if waited is not None:
            self._peer.runtime.deliver(waited)

    held: dict[tuple[Receiver, int], Batch] = {}

    assert_caught("traffic", {(Receiver, "_deliver"): mutant}, 1, f"{PEER} .*received {MESSAGE} before [0-9]+")


def test_skipped_gap_is_detected(assert_caught: Callable[..., None]):
    original = Receiver.on_broadcast

    def mutant(self: Receiver, link: Link, frame: bytes) -> None:
        original(self, link, frame)
        for window in self.windows.values():
            if window.reorder_buffer:
                window.last_contiguous = min(window.reorder_buffer) - 1
                self.deliver_buffered(window, self._peer.runtime.now())

    def lose_some(self: Receiver, link: Link, window: Any, frame: bytes, message: Any, now: float) -> None:
        if message.sequence % 3:
            original_relay(self, link, window, frame, message, now)

    original_relay = Receiver._relay
    mutants = {(Receiver, "on_broadcast"): mutant, (Receiver, "_relay"): lose_some}
    assert_caught("traffic", mutants, 1, f"{PEER} .*received {MESSAGE} before [0-9]+")


def test_forged_message_is_detected(assert_caught: Callable[..., None]):
    original = Receiver._deliver

    def mutant(self: Receiver, window: Any, message: Any, age_ms: float) -> None:
        original(self, window, message, age_ms)
        if message.sequence == 2:
            self._peer.runtime.deliver(Batch(message.author ^ 1, 1, (b"forged",), 1))

    assert_caught("traffic", {(Receiver, "_deliver"): mutant}, 1, f"{PEER} .*received {MESSAGE}, which was never sent")


def test_unrelayed_messages_are_detected(assert_caught: Callable[..., None]):
    def mutant(self: Receiver, _link: Link, _window: Any, frame: bytes, message: Any, now: float) -> None:
        kept = RetainedFrame(
            message.author, message.sequence, message.last_sequence, frame, message.hops, message.age_ms, now
        )
        self._broadcaster.retention.add(kept)

    assert_caught("traffic", {(Receiver, "_relay"): mutant}, 1, f"{PEER} has not received {MESSAGE}")


def test_missing_anti_entropy_on_new_links_is_detected(assert_caught: Callable[..., None]):
    mutants = {(AntiEntropy, "_send_missing"): do_nothing, (AntiEntropy, "_on_claims"): do_nothing}
    assert_caught("partition", mutants, 1, f"{PEER} has not received {MESSAGE}")


def test_needlessly_missed_message_is_detected(assert_caught: Callable[..., None]):
    """Most peers have the message, but none answers a request for it."""
    original = Receiver.on_broadcast

    def mutant(self: Receiver, link: Link, frame: bytes) -> None:
        if read_header(frame)[1] != 3 or self._peer.runtime.random.random() < 0.2:
            original(self, link, frame)

    mutants = {(Receiver, "on_broadcast"): mutant, (GapRepair, "on_want"): do_nothing}
    text = f"{PEER} missed {MESSAGE}, which is available, although the fabric was connected again"
    assert_caught("long traffic", mutants, 1, text)


def test_skipped_sequence_number_is_detected(assert_caught: Callable[..., None]):
    original = Broadcaster.flush

    def mutant(self: Broadcaster, **options: bool) -> None:
        has_sent = bool(self._bundle.messages)
        original(self, **options)
        if has_sent:
            self.receiver.windows[self._peer.me.peer_id].last_contiguous += 1

    text = rf"{PEER} .*numbered its message \d+ instead of \d+"
    assert_caught("traffic", {(Broadcaster, "flush"): mutant}, 1, text)


def test_unsent_last_messages_of_leaving_author_are_detected(assert_caught: Callable[..., None]):
    original = Broadcaster.send_to_links

    def mutant(
        self: Broadcaster,
        tree: Any,
        kept: RetainedFrame,
        frame: bytes,
        rest: Any,
        came_from: Link | None,
        **options: bool,
    ) -> None:
        """Delays its messages, and drops the delayed ones when it leaves."""
        if came_from is None:
            self._peer.runtime.call_later(1.0, original, self, tree, kept, frame, rest, None)
        else:
            original(self, tree, kept, frame, rest, came_from, **options)

    assert_caught("leave", {(Broadcaster, "send_to_links"): mutant}, 1, f"{PEER} has not received {MESSAGE}", seed=1)


# -- 2: no silent loss


def test_missed_report_that_starts_too_early_is_detected(assert_caught: Callable[..., None]):
    original = SimNode.report_missed

    def mutant(self: SimNode, missed: Missed) -> None:
        original(self, missed._replace(first_sequence=missed.first_sequence - 1))

    text = f"{PEER} .*reported a gap from {MESSAGE} on, but had"
    assert_caught("long partition", {(SimNode, "report_missed"): mutant}, 2, text)


def test_missed_report_that_starts_too_late_is_detected(assert_caught: Callable[..., None]):
    original = SimNode.report_missed

    def mutant(self: SimNode, missed: Missed) -> None:
        original(self, missed._replace(first_sequence=missed.first_sequence + 1))

    text = f"{PEER} .*reported a gap from {MESSAGE} on, but had"
    assert_caught("long partition", {(SimNode, "report_missed"): mutant}, 2, text)


def test_missed_report_of_unsent_message_is_detected(assert_caught: Callable[..., None]):
    original = SimNode.report_missed

    def mutant(self: SimNode, missed: Missed) -> None:
        original(self, missed._replace(last_sequence=missed.last_sequence + 10_000))

    text = f"{PEER} .*reported {MESSAGE} as missed, which was never sent"
    assert_caught("long partition", {(SimNode, "report_missed"): mutant}, 2, text)


def test_missed_report_of_available_message_is_detected(assert_caught: Callable[..., None]):
    original = Receiver._deliver

    def mutant(self: Receiver, window: Any, message: Any, age_ms: float) -> None:
        if message.sequence == 3:
            self.give_up_gap(message.author, window, message.last_sequence)
        else:
            original(self, window, message, age_ms)

    text = f"{PEER} .*reported {MESSAGE} as missed, which is available and only .* s old"
    assert_caught("long partition", {(Receiver, "_deliver"): mutant}, 2, text)


def test_empty_missed_report_is_detected(assert_caught: Callable[..., None]):
    original = SimNode.report_missed

    def mutant(self: SimNode, missed: Missed) -> None:
        original(self, missed._replace(last_sequence=missed.first_sequence - 1))

    text = f"{PEER} .*reported an empty gap at {MESSAGE}"
    assert_caught("long partition", {(SimNode, "report_missed"): mutant}, 2, text)


def test_silent_loss_is_detected(assert_caught: Callable[..., None]):
    """Detected at the next message, or at the end if there is none."""
    text = f"{PEER} .*(received {MESSAGE} before [0-9]+|has not received {MESSAGE})"
    assert_caught("long partition", {(SimNode, "report_missed"): do_nothing}, 1, text)


# -- 3: a joiner starts without a gap


def test_joiner_that_starts_too_late_is_detected(assert_caught: Callable[..., None]):
    original = Receiver._deliver

    def mutant(self: Receiver, window: Any, message: Any, age_ms: float) -> None:
        if message.sequence <= window.floor + 2 and window.floor:
            window.last_contiguous = message.last_sequence  # as if these had come before it joined
        else:
            original(self, window, message, age_ms)

    text = f"{PEER} started with {MESSAGE} instead of"
    assert_caught("joiners", {(Receiver, "_deliver"): mutant}, 3, text, seed=1)


def test_joiner_connected_without_starting_position_is_detected(assert_caught: Callable[..., None]):
    original = Discovery.start

    def mutant(self: Discovery) -> None:
        self._peer.runtime.emit(StateChanged(PeerState.CONNECTED))
        original(self)

    text = f"{PEER} (started with {MESSAGE} instead of|has not received {MESSAGE})"
    assert_caught("joiners", {(Discovery, "start"): mutant}, (1, 3), text)


def test_joiner_without_starting_position_is_detected(assert_caught: Callable[..., None]):
    original = AntiEntropy._adopt_position

    def mutant(self: AntiEntropy, _have: Any, now: float) -> None:
        original(self, (), now)
        self._broadcaster.receiver.has_position = False

    assert_caught("joiners", {(AntiEntropy, "_adopt_position"): mutant}, 4, f"(not connected|free slots).* {PEER}")


def test_joiner_with_gap_is_detected(assert_caught: Callable[..., None]):
    original = Receiver._deliver

    def mutant(self: Receiver, window: Any, message: Any, age_ms: float) -> None:
        if message.sequence == window.floor + 2 and window.floor:
            window.last_contiguous = message.last_sequence  # drops the second message after its starting position
        else:
            original(self, window, message, age_ms)

    text = f"{PEER} .*(received {MESSAGE} before [0-9]+|started with {MESSAGE} instead of [0-9]+)"
    assert_caught("joiners", {(Receiver, "_deliver"): mutant}, (1, 3), text)


# -- 4: the fabric stays regular


def test_link_above_degree_is_detected(assert_caught: Callable[..., None]):
    original: Any = vars(SlotTable)["unreserved_slots"].fget
    mutant = property(lambda self: original(self) + 1)
    assert_caught(
        "traffic", {(SlotTable, "unreserved_slots"): mutant}, 4, f"{PEER} .*has 5 links; at most 4 are allowed"
    )


def test_link_to_crashed_peer_is_detected(assert_caught: Callable[..., None]):
    mutants = {(Link, "on_disconnect"): do_nothing, (Link, "tick"): do_nothing}
    assert_caught("kill", mutants, 4, f"{PEER} has a link to a departed peer")


def test_link_known_to_one_end_is_detected(assert_caught: Callable[..., None]):
    mutants = {
        (LeaveProtocol, "on_unlink"): do_nothing,
        (Link, "on_disconnect"): do_nothing,
        (Link, "tick"): do_nothing,
    }
    assert_caught("traffic", mutants, 4, f"{PEER} has a link to {PEER}, which has none to it")


def test_unfilled_slots_are_detected(assert_caught: Callable[..., None]):
    mutants = {(SlotRepair, "_attempt_repair"): do_nothing, (PartitionMerge, "_probe"): do_nothing}
    assert_caught("kill", mutants, (4, 5), rf"\d+ free slots: {PEER}")


def test_rejected_joiners_are_detected(assert_caught: Callable[..., None]):
    def mutant(_self: JoinProtocol, call: Any, _request: Any) -> None:
        call.reject(RejectReason.NO_FREE_SLOT, "no")

    assert_caught("traffic", {(JoinProtocol, "on_join_request"): mutant}, 4, f"not connected, {PEER} is discovering")


def test_copies_returned_to_sender_are_detected(assert_caught: Callable[..., None]):
    original = Receiver._relay

    def mutant(self: Receiver, link: Link, window: Any, frame: bytes, message: Any, now: float) -> None:
        original(self, link, window, frame, message, now)
        link.send_frame(frame)

    assert_caught("quiescent", {(Receiver, "_relay"): mutant}, 4, r"a broadcast to 20 peers took \d+ copies, not 61")


def test_links_that_never_stop_changing_are_detected(assert_caught: Callable[..., None]):
    mutant = lambda self: self._peer.links.pick()  # noqa: E731
    assert_caught("quiescent", {(TwoHopView, "clustered_link"): mutant}, 4, "links still change")


# -- 5 and 6: the fabric stays connected, and merges after a partition


def test_survivors_that_do_not_use_peer_cache_are_detected(assert_caught: Callable[..., None]):
    mutants = {(SlotRepair, "_try_cached_peers"): do_nothing, (PartitionMerge, "_probe"): do_nothing}
    assert_caught("kill-most", mutants, (4, 5), rf"(components, of \d+|\d+ free slots: {PEER})")


def test_components_without_probes_are_detected(assert_caught: Callable[..., None]):
    """Each component is regular, so only connectivity can show the violation."""
    assert_caught("partition", {(PartitionMerge, "_send_probe"): do_nothing}, 6, r"components, of \d+(, \d+)+ peers")


def test_components_without_beacons_are_detected(assert_caught: Callable[..., None]):
    mutants = {(Beacons, "tick"): do_nothing, (Beacons, "on_beacon"): do_nothing}
    assert_caught("partition", mutants, 6, r"components, of \d+(, \d+)+ peers")


def test_components_that_accept_any_beacon_are_detected(assert_caught: Callable[..., None]):
    mutants = {(Beacons, "is_same_fabric"): lambda _self, _other: True, (PartitionMerge, "_decluster"): do_nothing}
    assert_caught("partition", mutants, 6, r"components, of \d+(, \d+)+ peers")


def test_harmless_replacement_is_not_detected(assert_caught: Callable[..., None]):
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        assert_caught("traffic", {(Peer, "on_links_changed"): Peer.on_links_changed}, 1, "")
