"""Rules on outgoing messages: hits on the tape, and one row per rule."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from broadloom.errors import HeldError, NotSentError
from broadloom.record import Tape, read
from broadloom.rules import Rules, parse
from tests.channel.joined import connected_channels
from tests.pipeline.building import build_in_memory
from tests.pipeline.event_rows import event_table

BEGIN = datetime(2027, 1, 15, 12, tzinfo=UTC)
A, B = "a" * 16, "b" * 16


def hit(second: float, number: int, status: str, peer: str = A, **columns: Any) -> dict[str, Any]:
    usual = {"kind": "rule_hit", "name": f"rule {number}", "rule_number": number, "actions": "copy", "duration_ms": 1.5}
    return {**usual, "event_time": BEGIN + timedelta(seconds=second), "peer": peer, "status": status, **columns}


def test_hits_are_counted_by_rule_and_outcome() -> None:
    rows = [
        hit(1, 2, "refused", actions="set, refuse"),
        hit(2, 1, "passed"),
        hit(3, 1, "held", B, duration_ms=2.25, actions="hold"),
        hit(4, 1, "failed", duration_ms=float("nan")),
        hit(5, 1, "passed", duration_ms=-1.0),
        hit(6, 1, "cancelled", duration_ms=None),
    ]
    found = build_in_memory(event_table(*rows), "rule_stats")["rule_stats"].to_dicts()
    names = ("hit_count", "passed_count", "refused_count", "held_count", "failed_count", "cancelled_count")
    assert found == [
        {"channel": "c", "rule_name": "rule 1", "rule_number": 1, "actions": "copy"}
        | dict(zip(names, (5, 2, 0, 1, 1, 1), strict=True))
        | {"peer_count": 2, "duration_ms": 3.75, "duration_max_ms": 2.25}
        | {"first_hit_time": BEGIN + timedelta(seconds=2), "last_hit_time": BEGIN + timedelta(seconds=6)},
        {"channel": "c", "rule_name": "rule 2", "rule_number": 2, "actions": "set, refuse"}
        | dict(zip(names, (1, 0, 1, 0, 0, 0), strict=True))
        | {"peer_count": 1, "duration_ms": 1.5, "duration_max_ms": 1.5}
        | dict.fromkeys(("first_hit_time", "last_hit_time"), BEGIN + timedelta(seconds=1)),
    ]


RULES = """
RULE "mark" IF { text("plan") } THEN { set priority 2; copy "copies" }
RULE "keys" IF { text("key") } THEN { refuse "a key" }
RULE "check" IF { text("later") } THEN { hold "for a person" }
RULE "never" IF { text("nothing has this") } THEN { stop }
"""


async def test_tape_of_a_real_channel_has_the_hits_of_its_rules(tmp_path: Path) -> None:
    rules = Rules(parse(RULES), held=tmp_path / "held", directory=tmp_path)
    tape = Tape(tmp_path / "tape")
    async with connected_channels(2, rules=rules, tape=tape) as (here, _):
        await here.broadcast_text("the plan")
        await here.broadcast_text("nothing to do with it")
        with pytest.raises(NotSentError):
            await here.broadcast_text("the plan and the key")
        with pytest.raises(NotSentError, match="a key"):
            here.broadcast_nowait(b"key")
        with pytest.raises(HeldError):
            await here.broadcast_text("later")
        (tmp_path / "copies").rename(tmp_path / "elsewhere")
        (tmp_path / "copies").write_text("not a directory")
        with pytest.raises(NotSentError, match="mark"):
            await here.broadcast_text("another plan")
    tape.close()
    rows = read(tmp_path / "tape", kinds=["rule_hit"]).sort_by("ordinal").to_pylist()
    mark, keys, check = 'rule "mark" (line 2)', 'rule "keys" (line 3)', 'rule "check" (line 4)'
    did = "set, copy"
    assert [(each["name"], each["rule_number"], each["actions"], each["status"]) for each in rows] == [
        (mark, 1, did, "passed"),
        (mark, 1, did, "passed"),
        (keys, 2, "refuse", "refused"),
        (keys, 2, "refuse", "refused"),
        (check, 3, "hold", "held"),
        (mark, 1, did, "failed"),
    ]
    assert [each["reason"] for each in rows[:5]] == [None, None, "a key", "a key", "for a person"]
    assert all(each["duration_ms"] > 0 for each in rows)
    stats = build_in_memory(read(tmp_path / "tape"), "rule_stats")["rule_stats"]
    columns = ("rule_name", "hit_count", "passed_count", "refused_count", "held_count", "failed_count")
    assert stats.select(columns).rows() == [(mark, 3, 2, 0, 0, 1), (keys, 2, 0, 2, 0, 0), (check, 1, 0, 0, 1, 0)]
    assert [each.hits for each in rules.counts()] == [3, 2, 1, 0]
