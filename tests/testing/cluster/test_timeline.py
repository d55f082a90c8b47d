"""The change log of a timeline: numbered, bounded, each change returned once."""

from broadloom.testing.cluster.timeline import Annotation, ChangeLog


def texts_since(log: ChangeLog, since: int) -> tuple[int, list[str]]:
    after, changes = log.since(since)
    return after, [change.text for change in changes if isinstance(change, Annotation)]


def test_change_log_returns_each_change_once() -> None:
    log = ChangeLog(changes_max=100)
    assert texts_since(log, 0) == (0, [])
    for number in range(5):
        log.add(Annotation(0.0, str(number)))
    after, texts = texts_since(log, 0)
    assert texts == ["0", "1", "2", "3", "4"]
    assert texts_since(log, after) == (5, [])
    log.add(Annotation(0.0, "5"))
    assert texts_since(log, after) == (6, ["5"])


def test_late_reader_can_tell_that_changes_were_dropped() -> None:
    log = ChangeLog(changes_max=3)
    for number in range(10):
        log.add(Annotation(0.0, str(number)))
    after, texts = texts_since(log, 2)
    assert texts == ["7", "8", "9"]
    assert after - 2 > len(texts)
    assert texts_since(log, 8) == (10, ["8", "9"])
