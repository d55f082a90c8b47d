"""Usage: rosters, activity, authors, groups and topics, each against a count in plain Python over random events."""

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pytest

from broadloom.pipeline.table import TableInputs
from broadloom.pipeline.tables import activity, author_stats, group_stats, rosters, topic_stats
from broadloom.record.arrow_import import pa
from broadloom.record.schema import EventKind
from tests.pipeline.event_rows import event_table

BEGIN = datetime(2027, 1, 15, 20, tzinfo=UTC)
LIVES = pa.schema(
    [
        *((name, pa.string()) for name in ("channel", "peer")),
        *((name, pa.timestamp("us", tz="UTC")) for name in ("since", "gone")),
        ("how", pa.string()),
    ]
)
MESSAGES = pa.schema(
    [
        *((name, pa.string()) for name in ("channel", "author", "group", "topic", "parent_author", "member")),
        ("parent_member", pa.string()),
        ("sequence", pa.int64()),
        ("size", pa.int64()),
        ("time", pa.timestamp("us", tz="UTC")),
    ]
)


def some_messages() -> list[dict]:
    """A few hundred, over two days, in some groups and about some topics, or none."""
    draw = random.Random(7)
    return [
        {
            "channel": draw.choice(["c", "d"]),
            "author": f"p{draw.randrange(6) * draw.randrange(3)}",
            "sequence": n,
            "time": BEGIN + timedelta(seconds=draw.randrange(30 * 3600)),
            "size": draw.choice([None, 10, 200]),
            "group": draw.choice([None, "g", "h"]),
            "topic": draw.choice([None, "t", "u", "v"]),
            "parent_author": draw.choice([None, "p1"]),
            "member": draw.choice([None, None, "m1", "m2"]),
            "parent_member": draw.choice([None, None, "m1"]),
        }
        for n in range(300)
    ]


@pytest.fixture(scope="module")
def said() -> list[dict]:
    return some_messages()


@pytest.fixture(scope="module")
def inputs(spark, said) -> TableInputs:
    rows = [{**row, "kind": "sent", "observer": row["author"]} for row in said]
    later = timedelta(seconds=1)
    rows += [{**row, "kind": "received", "observer": "quiet", "time": row["time"] + later} for row in said[::3]]
    # One that does not record: it is known from what others received.
    rows += [{**said[0], "kind": "received", "observer": "quiet", "author": "unseen"}]
    rows += [
        {"kind": "joined", "time": BEGIN, "observer": "p1", "name": "ann"},
        {"kind": "identification", "time": BEGIN, "observer": "p1", "author": "p2", "name": "bob"},
        {"kind": "identification", "time": BEGIN - later, "observer": "p2", "author": "p1", "name": "not ann"},
        {"kind": EventKind.ROWS_DROPPED.value, "time": BEGIN, "until": BEGIN, "count": 3},
    ]
    lives = [
        {"channel": "c", "peer": "p1", "since": BEGIN, "gone": BEGIN + timedelta(hours=1), "how": "left"},
        {"channel": "c", "peer": "p2", "since": BEGIN, "how": "there"},
        {"channel": "d", "peer": "p1", "since": BEGIN, "how": "there"},
    ]
    found = TableInputs(spark, spark.createDataFrame(event_table(*rows)).cache())
    found.tables["messages"] = spark.createDataFrame(pa.Table.from_pylist(said, schema=MESSAGES)).cache()
    found.tables["lives"] = spark.createDataFrame(pa.Table.from_pylist(lives, schema=LIVES))
    return found


def built(table, inputs: TableInputs) -> list[dict]:
    frame = table.build(inputs)
    assert frame.columns == [each.name for each in table.columns]
    return list(frame.toArrow().to_pylist())


def test_rosters_have_the_name_that_a_peer_gave_itself(inputs: TableInputs) -> None:
    found = {(row["channel"], row["peer"]): row for row in built(rosters.TABLE, inputs)}
    assert {key: row["name"] for key, row in found.items()} == {
        ("c", "p1"): "ann",
        ("c", "p2"): "bob",
        ("d", "p1"): None,
    }
    assert found["c", "p1"]["until"] == BEGIN + timedelta(hours=1)
    assert found["c", "p2"]["until"] is None


def test_activity_counts_each_peer_once_an_hour_and_once_a_day(inputs: TableInputs, said: list[dict]) -> None:
    peers: dict[tuple, set] = defaultdict(set)
    own: dict[tuple, list] = defaultdict(list)
    for row in inputs.events.toArrow().to_pylist():
        for span in activity.PERIODS:
            key = (row["channel"], span, begin_of(row["time"], span))
            peers[key] |= {row["observer"]} - {None}
            peers[key] |= {row["author"]} if row["kind"] == "received" else set()
    for row in said:
        for span in activity.PERIODS:
            own[row["channel"], span, begin_of(row["time"], span)].append(row)
    found = {(row["channel"], row["span"], row["begins"]): row for row in built(activity.TABLE, inputs)}
    assert set(found) == set(peers)
    assert "unseen" in set().union(*peers.values())
    for key, row in found.items():
        assert row["peers"] == len(peers[key])
        assert row["authors"] == len({each["author"] for each in own[key]})
        assert (row["messages"], row["bytes"]) == (len(own[key]), sum(each["size"] or 0 for each in own[key]))


def begin_of(time: datetime, span: str) -> datetime:
    time = time.replace(minute=0, second=0, microsecond=0)
    return time if span == "hour" else time.replace(hour=0)


def test_authors_are_ranked_by_what_they_said(inputs: TableInputs, said: list[dict]) -> None:
    found = built(author_stats.TABLE, inputs)
    for channel in ("c", "d"):
        own = defaultdict(list)
        for row in said:
            if row["channel"] == channel:
                own[row["author"]].append(row)
        order = sorted(own, key=lambda name: (-len(own[name]), -sum(each["size"] or 0 for each in own[name]), name))
        here = [row for row in found if row["channel"] == channel]
        assert [(row["rank"], row["author"]) for row in here] == list(enumerate(order, 1))
        for row in here:
            assert measures(row) == measured(own[row["author"]])
            assert row["groups"] == len({each["group"] for each in own[row["author"]]} - {None})
            assert row["topics"] == len({each["topic"] for each in own[row["author"]]} - {None})
    assert {row["name"] for row in found if (row["channel"], row["author"]) == ("c", "p2")} == {"bob"}


@pytest.mark.parametrize(("table", "keys"), [(group_stats.TABLE, ("group",)), (topic_stats.TABLE, ("group", "topic"))])
def test_groups_and_topics_add_up_to_all_messages(table, keys, inputs: TableInputs, said: list[dict]) -> None:
    own = defaultdict(list)
    for row in said:
        own[(row["channel"], *(row[key] for key in keys))].append(row)
    found = {(row["channel"], *(row[key] for key in keys)): row for row in built(table, inputs)}
    assert set(found) == set(own)
    for key, row in found.items():
        assert measures(row) == measured(own[key])
        assert row["authors"] == len({each["member"] or each["author"] for each in own[key]})
        if "topics" in row:
            assert row["topics"] == len({each["topic"] for each in own[key]} - {None})
    assert sum(row["messages"] for row in found.values()) == len(said)


def measures(row: dict) -> tuple:
    return row["messages"], row["bytes"], row["responses"], row["first"], row["last"]


def measured(rows: list[dict]) -> tuple:
    times = [row["time"] for row in rows]
    total = sum(row["size"] or 0 for row in rows)
    responses = sum(bool(row["parent_author"] or row["parent_member"]) for row in rows)
    return len(rows), total, responses, min(times), max(times)
