"""How fast an overloaded peer speaks."""

from weft.net.pace import BEHIND_S, BURST_S, FREE, SLOWEST, Pace


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def speak(pace: Pace, clock: Clock, seconds: float, *, bytes_per_s: float, size: int = 1000) -> int:
    """As fast as wanted, or as allowed; says how much."""
    said, end = 0, clock.time + seconds
    while clock.time < end:
        if pace.is_spent:
            clock.time += pace.pause_s
        else:
            pace.spend(size)
            said += size
            clock.time += size / bytes_per_s
    return said


def fall_behind(pace: Pace, clock: Clock, seconds: float) -> None:
    end = clock.time + seconds
    while clock.time < end:
        pace.behind()
        clock.time += 0.01


def test_nobody_is_held_up_without_need() -> None:
    clock = Clock()
    pace = Pace(clock)
    assert speak(pace, clock, 1, bytes_per_s=10e6) >= 10e6


def test_a_burst_to_be_read_changes_nothing() -> None:
    clock = Clock()
    pace = Pace(clock)
    speak(pace, clock, 1, bytes_per_s=10e6)
    fall_behind(pace, clock, BEHIND_S / 2)
    assert speak(pace, clock, 1, bytes_per_s=10e6) >= 10e6


def test_who_stays_behind_speaks_half_as_fast_and_then_faster_again() -> None:
    clock = Clock()
    pace = Pace(clock)
    speak(pace, clock, 1, bytes_per_s=10e6)
    for _ in range(int(BEHIND_S / 0.01) + 2):
        pace.behind()
        speak(pace, clock, 0.01, bytes_per_s=10e6)
    slow = speak(pace, clock, 0.2, bytes_per_s=10e6) / 0.2
    assert 3e6 < slow < 8e6
    speak(pace, clock, 3, bytes_per_s=10e6)
    assert speak(pace, clock, 1, bytes_per_s=10e6) > 9e6
    assert FREE > 10e6


def test_everyone_may_say_something_however_loud_the_others_are() -> None:
    clock = Clock()
    pace = Pace(clock)
    speak(pace, clock, 1, bytes_per_s=10e6)
    said, seconds = 0, 0.0
    for _ in range(50):
        fall_behind(pace, clock, 0.02)
        began = clock.time
        said += speak(pace, clock, 0.08, bytes_per_s=10e6)
        seconds += clock.time - began
    assert said / seconds > SLOWEST / 2


def test_what_was_not_said_is_not_saved_for_later() -> None:
    clock = Clock()
    pace = Pace(clock)
    speak(pace, clock, 1, bytes_per_s=10e6)
    fall_behind(pace, clock, 1)
    clock.time += 0.5
    allowed = 0
    while not pace.is_spent:
        pace.spend(1000)
        allowed += 1000
    assert allowed <= 10e6 * BURST_S + 1000
