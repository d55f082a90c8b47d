"""A checker that never fires is worthless: break each promise on purpose, and see that the simulator says so.

Every mutant changes one thing that the fabric does. The history without it keeps all promises; the same history with it
must end in PromiseBroken, with the number of the promise and, where somebody is to blame, who and which message.
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
    "talk": {"peers": 20, "step": [*GROWN, *TRAFFIC, CONVERGE]},
    "long talk": {
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
    "newcomers": {
        "peers": 12,
        "step": [
            *GROWN,
            *TRAFFIC,
            {"do": "churn", "fraction_per_min": 9, "minutes": 0.1},
            {"do": "wait", "duration_s": 3},
            CONVERGE,
        ],
    },
    "split": {
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
    "long split": {
        # Longer than messages are kept: what the other side said cannot be had any more, and must be told.
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
    "rest": {
        "peers": 20,
        "step": [*GROWN, {"do": "quiesce", "timeout_s": 60}, {"do": "measure_redundancy", "broadcasts": 2}],
    },
}


def scenario(name: str) -> Scenario:
    return parse(name, SCENARIOS[name])


@cache
def run_unchanged(name: str, seed: int) -> Run:
    """The history without a mutant."""
    return scenario(name).run(seed)


@pytest.fixture
def assert_caught(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put mutants in place of methods, and see which promise the history breaks then."""

    def check(
        name: str,
        mutants: dict[tuple[type[Any], str], Any],
        promise: int | tuple[int, ...],
        text: str,
        seed: int = 0,
    ) -> None:
        run_unchanged(name, seed)
        for (owner, method), mutant in mutants.items():
            assert method in vars(owner), f"{owner.__name__} has no {method} to be replaced"
            monkeypatch.setattr(owner, method, mutant)
        with pytest.raises(GuaranteeViolation) as broken:
            scenario(name).run(seed)
        said = str(broken.value)
        numbers = (promise,) if isinstance(promise, int) else promise
        assert said.startswith(tuple(f"promise {number}, at " for number in numbers)), said
        assert re.search(text, said), said

    return check


def do_nothing(*_args: Any, **_options: Any) -> None:
    """What a mutant does that leaves something out."""


# -- 1: every message, once, in order


def test_a_message_given_twice(assert_caught: Callable[..., None]):
    honest = Receiver._deliver

    def mutant(self: Receiver, window: Any, message: Any, age_ms: float) -> None:
        honest(self, window, message, age_ms)
        if message.sequence == 2:
            window.last_contiguous = 1
            honest(self, window, message, age_ms)

    assert_caught("talk", {(Receiver, "_deliver"): mutant}, 1, f"{PEER} .*was given message {MESSAGE} twice")


def test_a_duplicate_not_recognised(assert_caught: Callable[..., None]):
    honest = Receiver.on_broadcast

    def mutant(self: Receiver, link: Link, frame: bytes) -> None:
        marks = {author: window.last_contiguous for author, window in self.windows.items()}
        honest(self, link, frame)
        for author, mark in marks.items():
            if self.windows[author].last_contiguous > max(mark, 2):
                self.windows[author].last_contiguous = mark  # forgets at once what it had

    assert_caught("talk", {(Receiver, "on_broadcast"): mutant}, 1, f"{PEER} .*was given message {MESSAGE} twice")


def test_messages_out_of_the_author_s_order(assert_caught: Callable[..., None]):
    def mutant(self: Receiver, window: Any, message: Any, _age_ms: float) -> None:
        """The second frame waits for the third."""
        given = Batch(message.author, message.sequence, message.messages, message.hops)
        is_second, waited = window.last_contiguous == 1, held.pop((self, message.author), None)
        window.last_contiguous = message.last_sequence
        if is_second:
            held[self, message.author] = given
        else:
            self._peer.runtime.deliver(given)
        if waited is not None:
            self._peer.runtime.deliver(waited)

    held: dict[tuple[Receiver, int], Batch] = {}

    assert_caught("talk", {(Receiver, "_deliver"): mutant}, 1, f"{PEER} .*was given {MESSAGE} before {MESSAGE}")


def test_a_gap_that_is_stepped_over(assert_caught: Callable[..., None]):
    honest = Receiver.on_broadcast

    def mutant(self: Receiver, link: Link, frame: bytes) -> None:
        honest(self, link, frame)
        for window in self.windows.values():
            if window.reorder_buffer:
                window.last_contiguous = min(window.reorder_buffer) - 1
                self.deliver_buffered(window, self._peer.runtime.now())

    def loses_some(self: Receiver, link: Link, window: Any, frame: bytes, message: Any, now: float) -> None:
        if message.sequence % 3:
            honest_pass_on(self, link, window, frame, message, now)

    honest_pass_on = Receiver._relay
    mutants = {(Receiver, "on_broadcast"): mutant, (Receiver, "_relay"): loses_some}
    assert_caught("talk", mutants, 1, f"{PEER} .*was given {MESSAGE} before {MESSAGE}")


def test_a_message_that_nobody_sent(assert_caught: Callable[..., None]):
    honest = Receiver._deliver

    def mutant(self: Receiver, window: Any, message: Any, age_ms: float) -> None:
        honest(self, window, message, age_ms)
        if message.sequence == 2:
            self._peer.runtime.deliver(Batch(message.author ^ 1, 1, (b"forged",), 1))

    assert_caught("talk", {(Receiver, "_deliver"): mutant}, 1, f"{PEER} .*was given {MESSAGE}, which nobody sent")


def test_messages_that_are_not_passed_on(assert_caught: Callable[..., None]):
    def mutant(self: Receiver, _link: Link, _window: Any, frame: bytes, message: Any, now: float) -> None:
        kept = RetainedFrame(
            message.author, message.sequence, message.last_sequence, frame, message.hops, message.age_ms, now
        )
        self._broadcaster.retention.add(kept)

    assert_caught("talk", {(Receiver, "_relay"): mutant}, 1, f"{PEER} has not got {MESSAGE}")


def test_new_links_that_do_not_reconcile(assert_caught: Callable[..., None]):
    mutants = {(AntiEntropy, "_send_missing"): do_nothing, (AntiEntropy, "_on_claims"): do_nothing}
    assert_caught("split", mutants, 1, f"{PEER} has not got {MESSAGE}")


def test_a_message_that_is_missed_without_need(assert_caught: Callable[..., None]):
    """Everyone holds it, and nobody answers who lacks it."""
    honest = Receiver.on_broadcast

    def mutant(self: Receiver, link: Link, frame: bytes) -> None:
        if read_header(frame)[1] != 3 or self._peer.runtime.random.random() < 0.2:
            honest(self, link, frame)

    mutants = {(Receiver, "on_broadcast"): mutant, (GapRepair, "on_want"): do_nothing}
    text = f"{PEER} missed {MESSAGE}, which can be had, although the fabric was whole again"
    assert_caught("long talk", mutants, 1, text)


def test_an_author_that_skips_a_number(assert_caught: Callable[..., None]):
    honest = Broadcaster.flush

    def mutant(self: Broadcaster) -> None:
        has_spoken = bool(self._bundle.messages)
        honest(self)
        if has_spoken:
            self.receiver.windows[self._peer.me.peer_id].last_contiguous += 1

    text = rf"{PEER} .*numbered its message \d+ where \d+ comes next"
    assert_caught("talk", {(Broadcaster, "flush"): mutant}, 1, text)


def test_a_leaver_whose_last_words_are_not_sent(assert_caught: Callable[..., None]):
    honest = Broadcaster.send_to_links

    def mutant(
        self: Broadcaster, tree: Any, kept: RetainedFrame, frame: bytes, rest: Any, came_from: Link | None
    ) -> None:
        """Collects for a while, and does not look at what it has collected when it leaves."""
        if came_from is None:
            self._peer.runtime.call_later(1.0, honest, self, tree, kept, frame, rest, None)
        else:
            honest(self, tree, kept, frame, rest, came_from)

    assert_caught("leave", {(Broadcaster, "send_to_links"): mutant}, 1, f"{PEER} has not got {MESSAGE}", seed=1)


# -- 2: nothing is lost silently


def test_told_of_more_than_was_missed(assert_caught: Callable[..., None]):
    honest = SimNode.report_missed

    def mutant(self: SimNode, missed: Missed) -> None:
        honest(self, missed._replace(first_sequence=missed.first_sequence - 1))

    text = f"{PEER} .*was told that it missed from {MESSAGE} on, but had"
    assert_caught("long split", {(SimNode, "report_missed"): mutant}, 2, text)


def test_told_of_less_than_was_missed(assert_caught: Callable[..., None]):
    honest = SimNode.report_missed

    def mutant(self: SimNode, missed: Missed) -> None:
        honest(self, missed._replace(first_sequence=missed.first_sequence + 1))

    text = f"{PEER} .*was told that it missed from {MESSAGE} on, but had"
    assert_caught("long split", {(SimNode, "report_missed"): mutant}, 2, text)


def test_told_of_what_nobody_sent(assert_caught: Callable[..., None]):
    honest = SimNode.report_missed

    def mutant(self: SimNode, missed: Missed) -> None:
        honest(self, missed._replace(last_sequence=missed.last_sequence + 10_000))

    text = f"{PEER} .*was told that it missed {MESSAGE}, which nobody sent"
    assert_caught("long split", {(SimNode, "report_missed"): mutant}, 2, text)


def test_told_of_what_can_still_be_had(assert_caught: Callable[..., None]):
    honest = Receiver._deliver

    def mutant(self: Receiver, window: Any, message: Any, age_ms: float) -> None:
        if message.sequence == 3:
            self.give_up_gap(message.author, window, message.last_sequence)
        else:
            honest(self, window, message, age_ms)

    text = f"{PEER} .*was told that it missed {MESSAGE}, which is only .* s old"
    assert_caught("long split", {(Receiver, "_deliver"): mutant}, 2, text)


def test_told_of_nothing(assert_caught: Callable[..., None]):
    honest = SimNode.report_missed

    def mutant(self: SimNode, missed: Missed) -> None:
        honest(self, missed._replace(last_sequence=missed.first_sequence - 1))

    text = f"{PEER} .*was told of an empty range from {MESSAGE} on"
    assert_caught("long split", {(SimNode, "report_missed"): mutant}, 2, text)


def test_not_told_at_all(assert_caught: Callable[..., None]):
    """It is found where the next message comes, or where none does; both ways a message is not there."""
    text = f"{PEER} .*(was given {MESSAGE} before {MESSAGE}|has not got {MESSAGE})"
    assert_caught("long split", {(SimNode, "report_missed"): do_nothing}, 1, text)


# -- 3: a newcomer starts cleanly


def test_a_newcomer_that_starts_too_late(assert_caught: Callable[..., None]):
    honest = Receiver._deliver

    def mutant(self: Receiver, window: Any, message: Any, age_ms: float) -> None:
        if message.sequence <= window.floor + 2 and window.floor:
            window.last_contiguous = message.last_sequence  # as if these had come before its time
        else:
            honest(self, window, message, age_ms)

    text = f"{PEER} started with {MESSAGE}, should have with"
    assert_caught("newcomers", {(Receiver, "_deliver"): mutant}, 3, text, seed=1)


def test_a_newcomer_that_is_connected_before_it_has_a_starting_point(assert_caught: Callable[..., None]):
    honest = Discovery.start

    def mutant(self: Discovery) -> None:
        self._peer.runtime.emit(StateChanged(PeerState.CONNECTED))
        honest(self)

    text = f"{PEER} (started with {MESSAGE}, should have with|has not got {MESSAGE})"
    assert_caught("newcomers", {(Discovery, "start"): mutant}, (1, 3), text)


def test_a_newcomer_without_a_starting_point(assert_caught: Callable[..., None]):
    honest = AntiEntropy._adopt_position

    def mutant(self: AntiEntropy, _have: Any, now: float) -> None:
        honest(self, (), now)
        self._broadcaster.receiver.has_position = False

    assert_caught("newcomers", {(AntiEntropy, "_adopt_position"): mutant}, 4, f"(not connected|holes).* {PEER}")


def test_a_newcomer_with_a_gap(assert_caught: Callable[..., None]):
    honest = Receiver._deliver

    def mutant(self: Receiver, window: Any, message: Any, age_ms: float) -> None:
        if message.sequence == window.floor + 2 and window.floor:
            window.last_contiguous = message.last_sequence  # the second after its starting point is swallowed
        else:
            honest(self, window, message, age_ms)

    text = f"{PEER} .*was given {MESSAGE} before {MESSAGE}"
    assert_caught("newcomers", {(Receiver, "_deliver"): mutant}, 1, text)


# -- 4: the fabric stays regular


def test_too_many_links(assert_caught: Callable[..., None]):
    honest: Any = vars(SlotTable)["unreserved_slots"].fget
    mutant = property(lambda self: honest(self) + 1)
    assert_caught("talk", {(SlotTable, "unreserved_slots"): mutant}, 4, f"{PEER} .*has 5 links; at most 4 are allowed")


def test_links_to_the_dead(assert_caught: Callable[..., None]):
    mutants = {(Link, "on_disconnect"): do_nothing, (Link, "tick"): do_nothing}
    assert_caught("kill", mutants, 4, f"{PEER} has a link to one that is gone")


def test_a_link_that_only_one_end_knows(assert_caught: Callable[..., None]):
    mutants = {
        (LeaveProtocol, "on_unlink"): do_nothing,
        (Link, "on_disconnect"): do_nothing,
        (Link, "tick"): do_nothing,
    }
    assert_caught("talk", mutants, 4, f"{PEER} has a link to {PEER}, which has none to it")


def test_holes_that_nobody_fills(assert_caught: Callable[..., None]):
    mutants = {(SlotRepair, "_attempt_repair"): do_nothing, (PartitionMerge, "_probe"): do_nothing}
    assert_caught("kill", mutants, (4, 5), rf"\d+ holes: {PEER}")


def test_newcomers_that_nobody_weaves_in(assert_caught: Callable[..., None]):
    def mutant(_self: JoinProtocol, call: Any, _request: Any) -> None:
        call.reject(RejectReason.NO_FREE_SLOT, "no")

    assert_caught("talk", {(JoinProtocol, "on_join_request"): mutant}, 4, f"not connected, {PEER} is discovering")


def test_copies_that_go_back_to_where_they_came_from(assert_caught: Callable[..., None]):
    honest = Receiver._relay

    def mutant(self: Receiver, link: Link, window: Any, frame: bytes, message: Any, now: float) -> None:
        honest(self, link, window, frame, message, now)
        link.send_frame(frame)

    assert_caught("rest", {(Receiver, "_relay"): mutant}, 4, r"a broadcast to 20 peers took \d+ copies, not 61")


def test_links_that_never_come_to_rest(assert_caught: Callable[..., None]):
    mutant = lambda self: self._peer.links.pick()  # noqa: E731
    assert_caught("rest", {(TwoHopView, "clustered_link"): mutant}, 4, "links still come and go")


# -- 5 and 6: parts find each other


def test_survivors_that_do_not_knock(assert_caught: Callable[..., None]):
    mutants = {(SlotRepair, "_try_cached_peers"): do_nothing, (PartitionMerge, "_probe"): do_nothing}
    assert_caught("kill-most", mutants, (4, 5), rf"(separate parts, of \d+|\d+ holes: {PEER})")


def test_survivors_that_do_not_look_beyond_their_part(assert_caught: Callable[..., None]):
    """Each part is as regular as it can be, so only that it is not alone gives it away."""
    assert_caught("split", {(PartitionMerge, "_send_probe"): do_nothing}, 6, r"separate parts, of \d+(, \d+)+ peers")


def test_parts_without_beacons(assert_caught: Callable[..., None]):
    mutants = {(Beacons, "tick"): do_nothing, (Beacons, "on_beacon"): do_nothing}
    assert_caught("split", mutants, 6, r"separate parts, of \d+(, \d+)+ peers")


def test_parts_that_take_every_beacon_for_their_own(assert_caught: Callable[..., None]):
    mutants = {(Beacons, "is_same_fabric"): lambda _self, _other: True, (PartitionMerge, "_decluster"): do_nothing}
    assert_caught("split", mutants, 6, r"separate parts, of \d+(, \d+)+ peers")


def test_what_is_found_is_the_mutant_and_not_the_replacing(assert_caught: Callable[..., None]):
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        assert_caught("talk", {(Peer, "on_links_changed"): Peer.on_links_changed}, 1, "")
