"""`PatternIndex`: the same matches as by looking at every pattern, at a cost that does not grow with their number."""

import time
from random import Random

from broadloom.switch.model import MessageClass, MessageId, Pattern, Recipient, Scope, SwitchMessage
from broadloom.switch.pattern_index import PatternIndex

OPERATIONS = [f"operation {number}" for number in range(5)]
FILES = [f"file {number}" for number in range(3)]
SESSIONS = "anna", "ben"


def random_pattern(random: Random) -> Pattern:
    scope = random.choice([None, *Scope])
    files = None if scope is Scope.SESSION else random.choice([None, (), tuple(random.sample(FILES, 2))])
    operations = tuple(random.sample(OPERATIONS, random.randrange(3)))
    return Pattern(True, operations, random.choice([None, *MessageClass]), scope, files)


def message(operation: str, file: str = "", scope: Scope = Scope.SESSION, session: str = "anna") -> SwitchMessage:
    return SwitchMessage(MessageId(1, 1), MessageClass.REQUEST, scope, Recipient.BOTH, session, file, operation, b"")


def test_index_finds_what_looking_at_every_pattern_finds() -> None:
    random = Random(5)
    for _ in range(50):
        index = PatternIndex()
        patterns: dict[int, tuple[str, tuple[Pattern, ...]]] = {}
        for peer_id in range(8):
            patterns[peer_id] = random.choice(SESSIONS), tuple(random_pattern(random) for _ in range(4))
            index.set(peer_id, *patterns[peer_id])
        for peer_id in (2, 5):
            index.remove(peer_id)
            del patterns[peer_id]
        index.set(3, "ben", patterns[3][1][:1])
        patterns[3] = "ben", patterns[3][1][:1]
        assert len(index) == sum(len(each) for _, each in patterns.values())
        for scope in Scope:
            sent = message(random.choice(OPERATIONS), "" if scope is Scope.SESSION else random.choice(FILES), scope)
            found = sorted((entry.peer_id, repr(entry.pattern)) for entry in index.find(sent, "anna"))
            expected = sorted(
                (peer_id, repr(pattern))
                for peer_id, (session, each) in patterns.items()
                for pattern in each
                if pattern.matches(sent, is_local=session == "anna")
            )
            assert found == expected
        for peer_id in list(patterns):
            index.remove(peer_id)
        assert (len(index), index._by_operation) == (0, {})


def cost_s(count: int) -> float:
    """Processor time to match one message against this many patterns, ten programs with as many files each."""
    index = PatternIndex()
    for peer_id in range(10):
        names = range(count // 10)
        index.set(
            peer_id, "anna", tuple(Pattern(True, (f"{peer_id} {name}",), files=(f"file {name}",)) for name in names)
        )
    sent = [message(f"{number % 10} {number % 7}", f"file {number % 7}", Scope.FILE) for number in range(1000)]
    started_at = time.process_time()
    for each in sent:
        assert len(list(index.find(each, "anna"))) == 1
    return (time.process_time() - started_at) / len(sent)


def test_ten_thousand_patterns_cost_as_much_as_a_hundred() -> None:
    few = min(cost_s(100) for _ in range(5))
    many = min(cost_s(10_000) for _ in range(3))
    assert many < 5 * few
