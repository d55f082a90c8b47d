"""Virtual time."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broadloom.testing.sim.virtual_clock import VirtualClock


def test_nothing_happens_before_its_time():
    clock = VirtualClock()
    happened: list[Any] = []
    clock.call_at(1.0, happened.append, "one")
    assert clock.run_until(0.999) == 0
    assert happened == []
    assert clock.now == 0.999


def test_what_is_due_at_the_end_happens():
    clock = VirtualClock()
    happened: list[Any] = []
    clock.call_at(1.0, happened.append, "one")
    assert clock.run_until(1.0) == 1
    assert happened == ["one"]


def test_time_stands_at_each_event_while_it_happens():
    clock = VirtualClock()
    times: list[float] = []
    for time in (0.5, 0.25, 2.0):
        clock.call_at(time, lambda: times.append(clock.now))
    clock.run_until(3.0)
    assert times == [0.25, 0.5, 2.0]
    assert clock.now == 3.0


def test_events_of_the_same_time_happen_in_the_order_of_planning():
    clock = VirtualClock()
    happened: list[Any] = []
    for number in range(100):
        clock.call_at(1.0, happened.append, number)
    clock.run_until(1.0)
    assert happened == list(range(100))


def test_an_event_can_plan_others():
    clock = VirtualClock()
    happened: list[Any] = []

    def again(left: int) -> None:
        happened.append(clock.now)
        if left:
            clock.call_at(clock.now + 1.0, again, left - 1)

    clock.call_at(1.0, again, 3)
    assert clock.run_until(3.0) == 3
    assert happened == [1.0, 2.0, 3.0]
    assert clock.run_until(9.0) == 1


def test_what_an_event_plans_for_now_happens_now_behind_what_was_planned():
    clock = VirtualClock()
    happened: list[Any] = []
    clock.call_at(1.0, lambda: clock.call_at(clock.now, happened.append, "planned late"))
    clock.call_at(1.0, happened.append, "planned early")
    clock.run_until(1.0)
    assert happened == ["planned early", "planned late"]


def test_actions_are_never_compared():
    clock = VirtualClock()
    happened: list[Any] = []
    clock.call_at(1.0, happened.append, {"not": "comparable"})
    clock.call_at(1.0, happened.append, object())
    assert clock.run_until(1.0) == 2


@given(st.lists(st.floats(0, 100)))
def test_events_happen_in_order_of_time_then_of_planning(times: list[float]):
    clock = VirtualClock()
    happened: list[tuple[float, int]] = []
    for number, time in enumerate(times):
        clock.call_at(time, lambda number=number: happened.append((clock.now, number)))
    assert clock.run_until(100.0) == len(times)
    assert happened == sorted((time, number) for number, time in enumerate(times))
