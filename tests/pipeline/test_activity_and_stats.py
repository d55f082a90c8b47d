"""Names of members, activity, and statistics of authors, groups and topics, compared with plain Python."""

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pytest

from broadloom.pipeline.tables import activity
from broadloom.record.schema import EventKind
from tests.pipeline.building import build_in_memory
from tests.pipeline.event_rows import event_table

BEGIN = datetime(2027, 1, 15, 20, tzinfo=UTC)


def some_messages() -> list[dict]:
    """A few hundred, over two days, in some groups and about some topics, or none."""
    draw = random.Random(7)
    return [
        {
            "channel": draw.choice(["c", "d"]),
            "author": f"p{draw.randrange(6) * draw.randrange(3)}",
            "sequence": n,
            "sent_time": BEGIN + timedelta(seconds=draw.randrange(30 * 3600)),
            "size_bytes": draw.choice([None, 10, 200]),
            "group_id": draw.choice([None, "g", "h"]),
            "topic": draw.choice([None, "t", "u", "v"]),
            "parent_author": draw.choice([None, "p1"]),
            "member": draw.choice([None, None, "m1", "m2"]),
            "parent_member": draw.choice([None, None, "m1"]),
        }
        for n in range(300)
    ]


@pytest.fixture(scope="module")
def messages() -> list[dict]:
    """The last one was sent by a peer without a tape, and is known because it was received."""
    sent = some_messages()
    return [*sent, {**sent[0], "author": "unseen"}]


@pytest.fixture(scope="module")
def rows(messages) -> list[dict]:
    events = [{**row, "event_time": row["sent_time"]} for row in messages[:-1]]
    for row in events:
        del row["sent_time"]
    rows = [{**row, "kind": "sent", "peer": row["author"]} for row in events]
    later = timedelta(seconds=1)
    rows += [
        {**row, "kind": "received", "peer": "quiet", "event_time": row["event_time"] + later} for row in events[::3]
    ]
    # A peer without a tape is known from what others received.
    rows += [{**events[0], "kind": "received", "peer": "quiet", "author": "unseen"}]
    rows += [
        {"kind": "joined", "event_time": BEGIN, "peer": "p1", "name": "ann"},
        {"kind": "identification", "event_time": BEGIN, "peer": "p1", "author": "p2", "name": "bob"},
        {"kind": "identification", "event_time": BEGIN - later, "peer": "p2", "author": "p1", "name": "not ann"},
        {"kind": EventKind.ROWS_DROPPED.value, "event_time": BEGIN, "end_time": BEGIN, "event_count": 3},
    ]
    return rows


@pytest.fixture(scope="module")
def tables(rows) -> dict[str, list[dict]]:
    names = ("activity", "author_stats", "group_stats", "topic_stats", "membership_intervals")
    return {name: found.to_dicts() for name, found in build_in_memory(event_table(*rows), *names).items()}


def test_membership_intervals_prefer_the_name_of_the_peer_itself(tables) -> None:
    found = {(row["channel"], row["peer"]): row for row in tables["membership_intervals"]}
    assert {key: found[key]["name"] for key in (("c", "p1"), ("c", "p2"), ("d", "p1"))} == {
        ("c", "p1"): "ann",
        ("c", "p2"): "bob",
        ("d", "p1"): None,
    }
    assert found["c", "p1"]["joined_time"] == BEGIN


def test_activity_counts_each_peer_once_per_period(tables, rows, messages: list[dict]) -> None:
    peers: dict[tuple, set] = defaultdict(set)
    own: dict[tuple, list] = defaultdict(list)
    for row in event_table(*rows).to_pylist():
        for span in activity.PERIODS:
            key = (row["channel"], span, begin_of(row["event_time"], span))
            peers[key] |= {row["peer"]} - {None}
            peers[key] |= {row["author"]} if row["kind"] == "received" else set()
    for row in messages:
        for span in activity.PERIODS:
            own[row["channel"], span, begin_of(row["sent_time"], span)].append(row)
    found = {(row["channel"], row["period"], row["start_time"]): row for row in tables["activity"]}
    assert set(found) == set(peers)
    assert "unseen" in set().union(*peers.values())
    for key, row in found.items():
        assert row["peer_count"] == len(peers[key])
        assert row["author_count"] == len({each["author"] for each in own[key]})
        assert (row["message_count"], row["payload_bytes"]) == (
            len(own[key]),
            sum(each["size_bytes"] or 0 for each in own[key]),
        )


def begin_of(time: datetime, span: str) -> datetime:
    time = time.replace(minute=0, second=0, microsecond=0)
    return time if span == "hour" else time.replace(hour=0)


def test_authors_are_ranked_by_messages_and_bytes(tables, messages: list[dict]) -> None:
    found = tables["author_stats"]
    for channel in ("c", "d"):
        own = defaultdict(list)
        for row in messages:
            if row["channel"] == channel:
                own[row["author"]].append(row)
        order = sorted(
            own, key=lambda name: (-len(own[name]), -sum(each["size_bytes"] or 0 for each in own[name]), name)
        )
        here = [row for row in found if row["channel"] == channel]
        assert [(row["volume_rank"], row["author"]) for row in here] == list(enumerate(order, 1))
        for row in here:
            assert measures(row) == measured(own[row["author"]])
            assert row["group_count"] == len({each["group_id"] for each in own[row["author"]]} - {None})
            assert row["topic_count"] == len({each["topic"] for each in own[row["author"]]} - {None})
    assert {row["name"] for row in found if (row["channel"], row["author"]) == ("c", "p2")} == {"bob"}


@pytest.mark.parametrize(("table", "keys"), [("group_stats", ("group_id",)), ("topic_stats", ("group_id", "topic"))])
def test_group_and_topic_stats_add_up_to_all_messages(table, keys, tables, messages: list[dict]) -> None:
    own = defaultdict(list)
    for row in messages:
        own[(row["channel"], *(row[key] for key in keys))].append(row)
    found = {(row["channel"], *(row[key] for key in keys)): row for row in tables[table]}
    assert set(found) == set(own)
    for key, row in found.items():
        assert measures(row) == measured(own[key])
        assert row["author_count"] == len({each["member"] or each["author"] for each in own[key]})
        if "topic_count" in row:
            assert row["topic_count"] == len({each["topic"] for each in own[key]} - {None})
    assert sum(row["message_count"] for row in found.values()) == len(messages)


def measures(row: dict) -> tuple:
    return (
        row["message_count"],
        row["payload_bytes"],
        row["reply_count"],
        row["first_message_time"],
        row["last_message_time"],
    )


def measured(rows: list[dict]) -> tuple:
    times = [row["sent_time"] for row in rows]
    total = sum(row["size_bytes"] or 0 for row in rows)
    responses = sum(bool(row["parent_author"] or row["parent_member"]) for row in rows)
    return len(rows), total, responses, min(times), max(times)
