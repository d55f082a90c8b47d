"""`AuthorMeter` and `Pacer`: an honest author is never ahead, a cheating one soon is."""

import random

import pytest

from broadloom.protocol.owner.card import Quota
from broadloom.protocol.owner.meter import GRACE_S, SLACK_S, AuthorMeter
from broadloom.protocol.owner.pacer import Pacer

PER_S, SIZE = 10.0, 100
QUOTA = Quota(messages_per_s=PER_S, bytes_per_s=PER_S * SIZE)


class Author:
    """Sends as fast as its pacer allows, or as fast as it likes."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sequence = 0
        self.pacer = Pacer(QUOTA, lambda: self.now)
        self.frames: list[tuple[int, float]] = []
        """Sequence number and time of sending."""

    def send_honestly(self, until_s: float) -> None:
        while self.now < until_s:
            delay_s = self.pacer.delay_s(SIZE)
            if delay_s:
                self.now += delay_s
                continue
            self.pacer.take(SIZE)
            self._send()

    def send_at(self, per_s: float, until_s: float) -> None:
        while self.now < until_s:
            self._send()
            self.now += 1 / per_s

    def _send(self) -> None:
        self.sequence += 1
        self.frames.append((self.sequence, self.now))


def meter() -> AuthorMeter:
    """One that counts from time 0 on."""
    return AuthorMeter(QUOTA, 0, 0.0, -GRACE_S - 0.001, SLACK_S)


def ahead_s_max(frames: list[tuple[int, float, float]]) -> float:
    """The most that a meter shows for (sequence, signed time, arrival)."""
    found = meter()
    return max(found.charge(number, number, SIZE, sent_s, 0.0, now) for number, sent_s, now in frames)


@pytest.mark.parametrize("seed", range(20))
def test_honest_author_is_never_ahead_whatever_the_network_does(seed: int) -> None:
    rng, author = random.Random(seed), Author()
    for _ in range(6):  # at the limit, with pauses
        author.send_honestly(author.now + rng.uniform(1, 20))
        author.now += rng.uniform(0, 15)
    arrivals, held_until = [], 0.0
    for number, sent_s in author.frames:
        if rng.random() < 0.01:
            held_until = sent_s + rng.uniform(0, 30)  # a partition, a paused process
        arrivals.append((number, sent_s, max(sent_s, held_until) + rng.uniform(0, 0.5)))
    arrivals.sort(key=lambda each: each[2])
    assert ahead_s_max(arrivals) <= 0


def test_honest_author_whose_clock_was_set_back_is_not_ahead() -> None:
    author = Author()
    author.send_honestly(60)
    assert ahead_s_max([(n, s if s < 30 else s - 3600, s) for n, s in author.frames]) <= 0


@pytest.mark.parametrize("reorder_s", [0.0, 1.0])
def test_author_at_ten_times_its_quota_is_far_ahead_soon(reorder_s: float) -> None:
    author, rng = Author(), random.Random(1)
    author.send_at(10 * PER_S, 5)
    arrivals = [(number, sent_s, sent_s + rng.uniform(0, reorder_s)) for number, sent_s in author.frames]
    assert ahead_s_max(sorted(arrivals, key=lambda each: each[2])) > 10


CLOCKS = {"stands still": lambda s: 0.0, "runs fast": lambda s: 10 * s, "goes back again and again": lambda s: -s % 7}


@pytest.mark.parametrize("clock", CLOCKS)
def test_false_clock_gains_little(clock: str) -> None:
    author = Author()
    author.send_at(10 * PER_S, 12)
    assert ahead_s_max([(number, CLOCKS[clock](sent_s), sent_s) for number, sent_s in author.frames]) > 10


def test_large_messages_are_ahead_by_their_bytes() -> None:
    found = meter()
    ahead_s = [found.charge(number, number, 10 * SIZE, number / PER_S, 0.0, number / PER_S) for number in range(1, 60)]
    assert ahead_s[-1] > 10
    assert found.exceeds_bytes


def test_nothing_is_counted_in_the_grace_period() -> None:
    found = AuthorMeter(QUOTA, 0, 0.0, 0.0, SLACK_S)
    assert max(found.charge(each, each, SIZE, each / 1e6, 0.0, each / 1e6) for each in range(1, 1000)) == 0


@pytest.mark.parametrize("quiet_from_s", [0.5, 3.0, 9.0])
def test_burst_after_the_grace_period_that_arrives_late_is_not_ahead(quiet_from_s: float) -> None:
    """The receiver was paused meanwhile. The time in which the author was quiet counts from when it was last heard."""
    found, author = AuthorMeter(QUOTA, 0, 0.0, 0.0, SLACK_S), Author()
    author.now = quiet_from_s
    author._send()
    found.charge(1, 1, SIZE, quiet_from_s, 0.0, quiet_from_s)
    author.now = 2 * GRACE_S
    author.send_honestly(3 * GRACE_S)
    _, *frames = author.frames
    now = author.now + 0.05
    assert max(found.charge(number, number, SIZE, sent_s, now - sent_s, now) for number, sent_s in frames) == 0


def test_message_that_can_never_be_sent_waits_forever() -> None:
    pacer = Pacer(Quota(bytes_per_s=100), lambda: 0.0)
    assert pacer.delay_s(501) == float("inf")
    assert pacer.delay_s(500) == 0
    assert Pacer(Quota(messages_per_s=0.01), lambda: 0.0).delay_s(1) == 0  # one message is always possible


def test_author_that_may_send_one_message_in_a_minute_is_not_ahead() -> None:
    quota, now = Quota(messages_per_s=1 / 60), 0.0
    pacer, found = Pacer(quota, lambda: now), AuthorMeter(quota, 0, 0.0, -GRACE_S - 0.001, SLACK_S)
    for number in range(1, 10):
        now += pacer.delay_s(SIZE)
        pacer.take(SIZE)
        assert found.charge(number, number, SIZE, now, 0.0, now) == 0
