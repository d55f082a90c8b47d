"""A checker that never fires is worthless: break each promise on purpose, and see that the simulator says so.

Every mutant changes one thing that the fabric does. The history without it keeps all promises; the same history with it
must end in PromiseBroken, with the number of the promise and, where somebody is to blame, who and which message.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from weft.fabric.beacons import Beacons
from weft.fabric.events import Batch, Missed, StateChanged
from weft.fabric.gaps import Gaps
from weft.fabric.joining import Joining
from weft.fabric.leaving import Leaving
from weft.fabric.link import Link
from weft.fabric.links import Links
from weft.fabric.merging import Merging
from weft.fabric.peer import Peer
from weft.fabric.reconcile import Reconcile
from weft.fabric.repair import Repair
from weft.fabric.retention import Kept
from weft.fabric.seeking import Seeking
from weft.fabric.state import State
from weft.fabric.stream import Stream
from weft.fabric.views import Views
from weft.sim.node import Node
from weft.sim.scenario import Scenario, parse
from weft.sim.steps import Run
from weft.sim.watch import PromiseBroken
from weft.wire.broadcast import name_of
from weft.wire.calls import Refusal

PEER = r"peer \d+"
MESSAGE = r"[0-9a-f]{16}#\d+"
SETTLE = {"do": "settle", "within_s": 30}
TALK = [{"do": "traffic", "per_s": 20}, {"do": "wait", "s": 3}]
GROWN = [{"do": "grow", "within_s": 30}]

SCENARIOS: dict[str, dict[str, Any]] = {
    "talk": {"peers": 20, "step": [*GROWN, *TALK, SETTLE]},
    "long talk": {
        "peers": 12,
        "peer": {"retention_s": 8},
        "step": [*GROWN, *TALK, {"do": "wait", "s": 15}, SETTLE],
    },
    "kill": {"peers": 24, "step": [*GROWN, *TALK, {"do": "kill", "share": 0.25}, {"do": "wait", "s": 3}, SETTLE]},
    "leave": {
        "peers": 24,
        "step": [*GROWN, {"do": "wait", "s": 12}, *TALK, {"do": "leave", "count": 8}, {"do": "wait", "s": 1}, SETTLE],
    },
    "kill-most": {"peers": 60, "step": [*GROWN, {"do": "kill", "share": 0.8}, {"do": "settle", "within_s": 60}]},
    "newcomers": {
        "peers": 12,
        "step": [*GROWN, *TALK, {"do": "churn", "share_per_min": 9, "minutes": 0.1}, {"do": "wait", "s": 3}, SETTLE],
    },
    "split": {
        "peers": 24,
        "step": [
            *GROWN,
            *TALK,
            {"do": "split"},
            {"do": "wait", "s": 15},
            {"do": "traffic", "per_s": 0},
            {"do": "heal"},
            SETTLE,
        ],
    },
    "long split": {
        # Longer than messages are kept: what the other side said cannot be had any more, and must be told.
        "peers": 12,
        "peer": {"retention_s": 8},
        "step": [
            *GROWN,
            *TALK,
            {"do": "split"},
            {"do": "wait", "s": 13},
            {"do": "heal"},
            {"do": "wait", "s": 10},
            {**SETTLE, "may_be_told": True},
        ],
    },
    "rest": {"peers": 20, "step": [*GROWN, {"do": "rest", "within_s": 60}, {"do": "copies", "broadcasts": 2}]},
}


def scenario(name: str) -> Scenario:
    return parse(name, SCENARIOS[name])


@cache
def passes(name: str, seed: int) -> Run:
    """The history without a mutant."""
    return scenario(name).run(seed)


@pytest.fixture
def caught(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put mutants in place of methods, and see which promise the history breaks then."""

    def check(
        name: str,
        mutants: dict[tuple[type[Any], str], Any],
        promise: int | tuple[int, ...],
        text: str,
        seed: int = 0,
    ) -> None:
        passes(name, seed)
        for (owner, method), mutant in mutants.items():
            assert method in vars(owner), f"{owner.__name__} has no {method} to be replaced"
            monkeypatch.setattr(owner, method, mutant)
        with pytest.raises(PromiseBroken) as broken:
            scenario(name).run(seed)
        said = str(broken.value)
        numbers = (promise,) if isinstance(promise, int) else promise
        assert said.startswith(tuple(f"promise {number}, at " for number in numbers)), said
        assert re.search(text, said), said

    return check


def nothing(*_args: Any, **_options: Any) -> None:
    """What a mutant does that leaves something out."""


# -- 1: every message, once, in order


def test_a_message_given_twice(caught: Callable[..., None]):
    honest = Stream._deliver

    def mutant(self: Stream, window: Any, message: Any, age_ms: float) -> None:
        honest(self, window, message, age_ms)
        if message.sequence == 2:
            window.mark = 1
            honest(self, window, message, age_ms)

    caught("talk", {(Stream, "_deliver"): mutant}, 1, f"{PEER} .*was given message {MESSAGE} twice")


def test_a_duplicate_not_recognised(caught: Callable[..., None]):
    honest = Stream.on_broadcast

    def mutant(self: Stream, link: Link, frame: bytes) -> None:
        marks = {author: window.mark for author, window in self.authors.items()}
        honest(self, link, frame)
        for author, mark in marks.items():
            if self.authors[author].mark > max(mark, 2):
                self.authors[author].mark = mark  # forgets at once what it had

    caught("talk", {(Stream, "on_broadcast"): mutant}, 1, f"{PEER} .*was given message {MESSAGE} twice")


def test_messages_out_of_the_author_s_order(caught: Callable[..., None]):
    def mutant(self: Stream, window: Any, message: Any, _age_ms: float) -> None:
        """The second frame waits for the third."""
        given = Batch(message.author, message.sequence, message.messages, message.hops)
        is_second, waited = window.mark == 1, held.pop((self, message.author), None)
        window.mark = message.last
        if is_second:
            held[self, message.author] = given
        else:
            self._peer.world.deliver(given)
        if waited is not None:
            self._peer.world.deliver(waited)

    held: dict[tuple[Stream, int], Batch] = {}

    caught("talk", {(Stream, "_deliver"): mutant}, 1, f"{PEER} .*was given {MESSAGE} before {MESSAGE}")


def test_a_gap_that_is_stepped_over(caught: Callable[..., None]):
    honest = Stream.on_broadcast

    def mutant(self: Stream, link: Link, frame: bytes) -> None:
        honest(self, link, frame)
        for window in self.authors.values():
            if window.waiting:
                window.mark = min(window.waiting) - 1
                self.deliver_waiting(window, self._peer.world.now())

    def loses_some(self: Stream, link: Link, window: Any, frame: bytes, message: Any, now: float) -> None:
        if message.sequence % 3:
            honest_pass_on(self, link, window, frame, message, now)

    honest_pass_on = Stream._pass_on
    mutants = {(Stream, "on_broadcast"): mutant, (Stream, "_pass_on"): loses_some}
    caught("talk", mutants, 1, f"{PEER} .*was given {MESSAGE} before {MESSAGE}")


def test_a_message_that_nobody_sent(caught: Callable[..., None]):
    honest = Stream._deliver

    def mutant(self: Stream, window: Any, message: Any, age_ms: float) -> None:
        honest(self, window, message, age_ms)
        if message.sequence == 2:
            self._peer.world.deliver(Batch(message.author ^ 1, 1, (b"forged",), 1))

    caught("talk", {(Stream, "_deliver"): mutant}, 1, f"{PEER} .*was given {MESSAGE}, which nobody sent")


def test_messages_that_are_not_passed_on(caught: Callable[..., None]):
    def mutant(self: Stream, _link: Link, _window: Any, frame: bytes, message: Any, now: float) -> None:
        kept = Kept(message.author, message.sequence, message.last, frame, message.hops, message.age_ms, now)
        self.retention.add(kept)

    caught("talk", {(Stream, "_pass_on"): mutant}, 1, f"{PEER} has not got {MESSAGE}")


def test_new_links_that_do_not_reconcile(caught: Callable[..., None]):
    mutants = {(Reconcile, "_send_lacking"): nothing, (Reconcile, "_learn"): nothing}
    caught("split", mutants, 1, f"{PEER} has not got {MESSAGE}")


def test_a_message_that_is_missed_without_need(caught: Callable[..., None]):
    """Everyone holds it, and nobody answers who lacks it."""
    honest = Stream.on_broadcast

    def mutant(self: Stream, link: Link, frame: bytes) -> None:
        if name_of(frame)[1] != 3 or self._peer.world.random.random() < 0.2:
            honest(self, link, frame)

    mutants = {(Stream, "on_broadcast"): mutant, (Gaps, "on_want"): nothing}
    text = f"{PEER} missed {MESSAGE}, which can be had, although the fabric was whole again"
    caught("long talk", mutants, 1, text)


def test_an_author_that_skips_a_number(caught: Callable[..., None]):
    honest = Stream.pack

    def mutant(self: Stream) -> None:
        has_spoken = bool(self._open.messages)
        honest(self)
        if has_spoken:
            self.authors[self._peer.me.peer].mark += 1

    text = rf"{PEER} .*numbered its message \d+ where \d+ comes next"
    caught("talk", {(Stream, "pack"): mutant}, 1, text)


def test_a_leaver_whose_last_words_are_not_sent(caught: Callable[..., None]):
    honest = Stream._spread

    def mutant(self: Stream, window: Any, kept: Kept, frame: bytes, rest: Any, came_from: Link | None) -> None:
        """Collects for a while, and does not look at what it has collected when it leaves."""
        if came_from is None:
            self._peer.world.after(1.0, honest, self, window, kept, frame, rest, None)
        else:
            honest(self, window, kept, frame, rest, came_from)

    caught("leave", {(Stream, "_spread"): mutant}, 1, f"{PEER} has not got {MESSAGE}", seed=1)


# -- 2: nothing is lost silently


def test_told_of_more_than_was_missed(caught: Callable[..., None]):
    honest = Node.missed

    def mutant(self: Node, missed: Missed) -> None:
        honest(self, missed._replace(first=missed.first - 1))

    text = f"{PEER} .*was told that it missed from {MESSAGE} on, but had"
    caught("long split", {(Node, "missed"): mutant}, 2, text)


def test_told_of_less_than_was_missed(caught: Callable[..., None]):
    honest = Node.missed

    def mutant(self: Node, missed: Missed) -> None:
        honest(self, missed._replace(first=missed.first + 1))

    text = f"{PEER} .*was told that it missed from {MESSAGE} on, but had"
    caught("long split", {(Node, "missed"): mutant}, 2, text)


def test_told_of_what_nobody_sent(caught: Callable[..., None]):
    honest = Node.missed

    def mutant(self: Node, missed: Missed) -> None:
        honest(self, missed._replace(last=missed.last + 10_000))

    text = f"{PEER} .*was told that it missed {MESSAGE}, which nobody sent"
    caught("long split", {(Node, "missed"): mutant}, 2, text)


def test_told_of_what_can_still_be_had(caught: Callable[..., None]):
    honest = Stream._deliver

    def mutant(self: Stream, window: Any, message: Any, age_ms: float) -> None:
        if message.sequence == 3:
            self.give_up(message.author, window, message.last)
        else:
            honest(self, window, message, age_ms)

    text = f"{PEER} .*was told that it missed {MESSAGE}, which is only .* s old"
    caught("long split", {(Stream, "_deliver"): mutant}, 2, text)


def test_told_of_nothing(caught: Callable[..., None]):
    honest = Node.missed

    def mutant(self: Node, missed: Missed) -> None:
        honest(self, missed._replace(last=missed.first - 1))

    text = f"{PEER} .*was told of an empty range from {MESSAGE} on"
    caught("long split", {(Node, "missed"): mutant}, 2, text)


def test_not_told_at_all(caught: Callable[..., None]):
    """It is found where the next message comes, or where none does; both ways a message is not there."""
    text = f"{PEER} .*(was given {MESSAGE} before {MESSAGE}|has not got {MESSAGE})"
    caught("long split", {(Node, "missed"): nothing}, 1, text)


# -- 3: a newcomer starts cleanly


def test_a_newcomer_that_starts_too_late(caught: Callable[..., None]):
    honest = Stream._deliver

    def mutant(self: Stream, window: Any, message: Any, age_ms: float) -> None:
        if message.sequence <= window.floor + 2 and window.floor:
            window.mark = message.last  # as if these had come before its time
        else:
            honest(self, window, message, age_ms)

    text = f"{PEER} started with {MESSAGE}, should have with"
    caught("newcomers", {(Stream, "_deliver"): mutant}, 3, text, seed=1)


def test_a_newcomer_that_is_connected_before_it_has_a_starting_point(caught: Callable[..., None]):
    honest = Seeking.start

    def mutant(self: Seeking) -> None:
        self._peer.world.observe(StateChanged(State.CONNECTED))
        honest(self)

    text = f"{PEER} (started with {MESSAGE}, should have with|has not got {MESSAGE})"
    caught("newcomers", {(Seeking, "start"): mutant}, (1, 3), text)


def test_a_newcomer_without_a_starting_point(caught: Callable[..., None]):
    honest = Reconcile._start_from

    def mutant(self: Reconcile, _have: Any, now: float) -> None:
        honest(self, (), now)
        self._stream.settled = False

    caught("newcomers", {(Reconcile, "_start_from"): mutant}, 4, f"(not connected|holes).* {PEER}")


def test_a_newcomer_with_a_gap(caught: Callable[..., None]):
    honest = Stream._deliver

    def mutant(self: Stream, window: Any, message: Any, age_ms: float) -> None:
        if message.sequence == window.floor + 2 and window.floor:
            window.mark = message.last  # the second after its starting point is swallowed
        else:
            honest(self, window, message, age_ms)

    text = f"{PEER} .*was given {MESSAGE} before {MESSAGE}"
    caught("newcomers", {(Stream, "_deliver"): mutant}, 1, text)


# -- 4: the fabric stays regular


def test_too_many_links(caught: Callable[..., None]):
    honest: Any = vars(Links)["free"].fget
    mutant = property(lambda self: honest(self) + 1)
    caught("talk", {(Links, "free"): mutant}, 4, f"{PEER} .*has 5 links; at most 4 are allowed")


def test_links_to_the_dead(caught: Callable[..., None]):
    mutants = {(Link, "on_lost"): nothing, (Link, "tick"): nothing}
    caught("kill", mutants, 4, f"{PEER} has a link to one that is gone")


def test_a_link_that_only_one_end_knows(caught: Callable[..., None]):
    mutants = {(Leaving, "on_cut"): nothing, (Link, "on_lost"): nothing, (Link, "tick"): nothing}
    caught("talk", mutants, 4, f"{PEER} has a link to {PEER}, which has none to it")


def test_holes_that_nobody_fills(caught: Callable[..., None]):
    mutants = {(Repair, "_try"): nothing, (Merging, "_probe"): nothing}
    caught("kill", mutants, (4, 5), rf"\d+ holes: {PEER}")


def test_newcomers_that_nobody_weaves_in(caught: Callable[..., None]):
    def mutant(_self: Joining, call: Any, _request: Any) -> None:
        call.refuse(Refusal.NO_ROOM, "no")

    caught("talk", {(Joining, "on_join"): mutant}, 4, f"not connected, {PEER} is seeking")


def test_copies_that_go_back_to_where_they_came_from(caught: Callable[..., None]):
    honest = Stream._pass_on

    def mutant(self: Stream, link: Link, window: Any, frame: bytes, message: Any, now: float) -> None:
        honest(self, link, window, frame, message, now)
        link.send_frame(frame)

    caught("rest", {(Stream, "_pass_on"): mutant}, 4, r"a broadcast to 20 peers took \d+ copies, not 61")


def test_links_that_never_come_to_rest(caught: Callable[..., None]):
    mutant = lambda self: self._peer.links.pick()  # noqa: E731
    caught("rest", {(Views, "dense_link"): mutant}, 4, "links still come and go")


# -- 5 and 6: parts find each other


def test_survivors_that_do_not_knock(caught: Callable[..., None]):
    mutants = {(Repair, "_knock"): nothing, (Merging, "_probe"): nothing}
    caught("kill-most", mutants, (4, 5), rf"(separate parts, of \d+|\d+ holes: {PEER})")


def test_survivors_that_do_not_look_beyond_their_part(caught: Callable[..., None]):
    """Each part is as regular as it can be, so only that it is not alone gives it away."""
    caught("split", {(Merging, "_ask"): nothing}, 6, r"separate parts, of \d+(, \d+)+ peers")


def test_parts_without_beacons(caught: Callable[..., None]):
    mutants = {(Beacons, "tick"): nothing, (Beacons, "on_beacon"): nothing}
    caught("split", mutants, 6, r"separate parts, of \d+(, \d+)+ peers")


def test_parts_that_take_every_beacon_for_their_own(caught: Callable[..., None]):
    mutants = {(Beacons, "of_one_fabric"): lambda _self, _other: True, (Merging, "_loosen"): nothing}
    caught("split", mutants, 6, r"separate parts, of \d+(, \d+)+ peers")


def test_what_is_found_is_the_mutant_and_not_the_replacing(caught: Callable[..., None]):
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        caught("talk", {(Peer, "on_links_changed"): Peer.on_links_changed}, 1, "")
