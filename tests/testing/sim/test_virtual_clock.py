"""The virtual clock."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broadloom.testing.sim.virtual_clock import VirtualClock


def test_call_does_not_run_before_its_time():
    clock = VirtualClock()
    calls: list[Any] = []
    clock.call_at(1.0, calls.append, "one")
    assert clock.run_until(0.999) == 0
    assert calls == []
    assert clock.now == 0.999


def test_call_due_at_the_end_runs():
    clock = VirtualClock()
    calls: list[Any] = []
    clock.call_at(1.0, calls.append, "one")
    assert clock.run_until(1.0) == 1
    assert calls == ["one"]


def test_clock_shows_the_time_of_the_running_call():
    clock = VirtualClock()
    times: list[float] = []
    for time in (0.5, 0.25, 2.0):
        clock.call_at(time, lambda: times.append(clock.now))
    clock.run_until(3.0)
    assert times == [0.25, 0.5, 2.0]
    assert clock.now == 3.0


def test_calls_at_the_same_time_run_in_scheduling_order():
    clock = VirtualClock()
    calls: list[Any] = []
    for number in range(100):
        clock.call_at(1.0, calls.append, number)
    clock.run_until(1.0)
    assert calls == list(range(100))


def test_call_can_schedule_calls():
    clock = VirtualClock()
    calls: list[Any] = []

    def again(left: int) -> None:
        calls.append(clock.now)
        if left:
            clock.call_at(clock.now + 1.0, again, left - 1)

    clock.call_at(1.0, again, 3)
    assert clock.run_until(3.0) == 3
    assert calls == [1.0, 2.0, 3.0]
    assert clock.run_until(9.0) == 1


def test_call_scheduled_for_now_runs_after_earlier_ones():
    clock = VirtualClock()
    calls: list[Any] = []
    clock.call_at(1.0, lambda: clock.call_at(clock.now, calls.append, "scheduled late"))
    clock.call_at(1.0, calls.append, "scheduled early")
    clock.run_until(1.0)
    assert calls == ["scheduled early", "scheduled late"]


def test_callbacks_are_never_compared():
    clock = VirtualClock()
    calls: list[Any] = []
    clock.call_at(1.0, calls.append, {"not": "comparable"})
    clock.call_at(1.0, calls.append, object())
    assert clock.run_until(1.0) == 2


@given(st.lists(st.floats(0, 100)))
def test_calls_run_in_order_of_time_then_of_scheduling(times: list[float]):
    clock = VirtualClock()
    calls: list[tuple[float, int]] = []
    for number, time in enumerate(times):
        clock.call_at(time, lambda number=number: calls.append((clock.now, number)))
    assert clock.run_until(100.0) == len(times)
    assert calls == sorted((time, number) for number, time in enumerate(times))
