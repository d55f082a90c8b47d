"""The log of a story: numbered, bounded, and nothing told twice."""

from weft.lab.story import ChangeLog, Told


def told(log: ChangeLog, since: int) -> tuple[int, list[str]]:
    after, changes = log.since(since)
    return after, [change.text for change in changes if isinstance(change, Told)]


def test_each_change_is_told_once_to_whoever_asks_with_the_last_number() -> None:
    log = ChangeLog(kept_max=100)
    assert told(log, 0) == (0, [])
    for number in range(5):
        log.add(Told(0.0, str(number)))
    after, texts = told(log, 0)
    assert texts == ["0", "1", "2", "3", "4"]
    assert told(log, after) == (5, [])
    log.add(Told(0.0, "5"))
    assert told(log, after) == (6, ["5"])


def test_who_comes_too_late_can_tell_that_it_has_missed_some() -> None:
    log = ChangeLog(kept_max=3)
    for number in range(10):
        log.add(Told(0.0, str(number)))
    after, texts = told(log, 2)
    assert texts == ["7", "8", "9"]
    assert after - 2 > len(texts)
    assert told(log, 8) == (10, ["8", "9"])
