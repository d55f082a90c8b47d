"""Who may call, with a clock turned by hand."""

from typing import Any, cast

import pytest

from weft.net.doorman import ADDRESSES_MAX, Doorman
from weft.net.limits import Limits

LIMITS = Limits(calls_per_s=10, calls_burst=20, handshakes_max=3)


class Caller:
    def __init__(self, remote_host: str = "alpha") -> None:
        self.remote_host = remote_host
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


class Door:
    def __init__(self, limits: Limits = LIMITS) -> None:
        self.time = 100.0
        self.doorman = Doorman(limits, lambda: self.time)

    def knock(self, caller: Caller) -> bool:
        return self.doorman.admits(cast("Any", caller))

    def done(self, caller: Caller) -> None:
        self.doorman.done(cast("Any", caller))

    def calls(self, count: int, host: str = "alpha", *, every_s: float = 0.0) -> int:
        """So many come and go; returns how many were let in."""
        admitted = 0
        for _ in range(count):
            self.time += every_s
            caller = Caller(host)
            admitted += self.knock(caller)
            self.done(caller)
        return admitted


def test_a_burst_is_let_in_and_no_more() -> None:
    door = Door()
    assert door.calls(25) == 20
    assert door.doorman.turned_away == 5
    assert door.calls(25, "beta") == 20, "others are not made to pay for it"


def test_the_right_to_call_grows_with_time_up_to_a_burst() -> None:
    door = Door()
    door.calls(20)
    door.time += 0.5
    assert door.calls(10) == 5
    door.time += 3600
    assert door.calls(100) == 20


@pytest.mark.parametrize("times_too_often", [1.01, 1.5, 5, 100])
def test_who_calls_too_often_is_let_in_at_the_rate_that_is_allowed(times_too_often: float) -> None:
    door = Door()
    door.calls(20)
    seconds, rate = 10, LIMITS.calls_per_s
    admitted = door.calls(int(seconds * rate * times_too_often), every_s=1 / (rate * times_too_often))
    assert admitted == pytest.approx(seconds * rate, abs=2)


def test_who_keeps_to_the_rate_is_never_turned_away() -> None:
    door = Door()
    assert door.calls(1000, every_s=1.001 / LIMITS.calls_per_s) == 1000
    assert door.doorman.turned_away == 0


def test_for_one_more_the_one_that_has_taken_longest_is_hurried_away() -> None:
    door = Door()
    callers = [Caller() for _ in range(5)]
    assert all(door.knock(caller) for caller in callers[:3])
    door.done(callers[0])
    assert door.knock(callers[3])
    assert door.doorman.hurried == 0
    assert door.knock(callers[4])
    assert [caller.aborted for caller in callers] == [False, True, False, False, False]
    assert door.doorman.hurried == 1
    assert door.doorman.pending == 3
    door.done(callers[1])
    assert door.doorman.pending == 3


def test_nobody_is_hurried_away_by_one_who_is_turned_away() -> None:
    door = Door(Limits(calls_per_s=1, calls_burst=3, handshakes_max=3))
    callers = [Caller() for _ in range(4)]
    assert [door.knock(caller) for caller in callers] == [True, True, True, False]
    assert not any(caller.aborted for caller in callers)
    assert door.doorman.pending == 3


def test_addresses_beyond_a_number_are_forgotten() -> None:
    door = Door()
    door.calls(20, "first")
    for number in range(ADDRESSES_MAX):
        door.calls(1, str(number))
    assert len(door.doorman._left) == ADDRESSES_MAX
    assert door.calls(1, "first") == 1
    assert len(door.doorman._left) == ADDRESSES_MAX


def test_when_nobody_is_let_in_any_more_all_are_hung_up_on() -> None:
    door = Door()
    callers = [Caller() for _ in range(3)]
    for caller in callers:
        door.knock(caller)
    door.doorman.hang_up()
    assert all(caller.aborted for caller in callers)
    assert door.doorman.pending == 0
