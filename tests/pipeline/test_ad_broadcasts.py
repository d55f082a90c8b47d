"""Ads: broadcasts, audience and fees, each compared with a naive computation."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.pipeline.billing import config
from broadloom.pipeline.tables.ad_broadcasts import add_audience, add_fees, broadcasts
from broadloom.record.schema import EventKind
from tests.pipeline.building import build_in_memory
from tests.pipeline.event_rows import event_table

BEGIN = datetime(2027, 1, 31, 22, tzinfo=UTC)
TIME = pl.Datetime("us", "UTC")
IMPRESSION = dict.fromkeys(("channel", "ad_name", "group_id", "topic", "peer"), pl.String()) | {"event_time": TIME}


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def micros(seconds: float) -> int:
    return int(at(seconds).timestamp() * 1_000_000)


def impressions(rows: list[tuple[str, str | None, str, int]]) -> pl.DataFrame:
    filled = [
        {"channel": "c", "ad_name": ad, "group_id": group, "topic": None, "event_time": at(when), "peer": peer}
        for ad, group, peer, when in rows
    ]
    return pl.DataFrame(filled, schema=IMPRESSION)


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from(["x", "y"]), st.sampled_from([None, "g"]), st.sampled_from(["o1", "o2"]), st.integers(0, 60)
        ),
        max_size=25,
    )
)
def test_impressions_are_grouped_like_naive_implementation(rows: list[tuple[str, str | None, str, int]]) -> None:
    expected: dict[tuple, list[tuple[int, set[str]]]] = {}
    for ad, group, peer, when in sorted(rows, key=lambda row: row[3]):
        own = expected.setdefault((ad, group), [])
        if not own or when - own[-1][0] > 10:
            own.append((when, set()))
        own[-1][1].add(peer)
    got = broadcasts(impressions(rows), 10_000_000).to_dicts()
    assert {(row["ad_name"], row["group_id"], row["broadcast_time"], row["impression_count"]) for row in got} == {
        (*key, micros(when), len(peers)) for key, own in expected.items() for when, peers in own
    }
    assert len(got) == sum(len(own) for own in expected.values())


@settings(max_examples=200, deadline=None)
@given(
    cuts=st.lists(st.lists(st.integers(0, 100), max_size=8, unique=True).map(sorted), max_size=6),
    when=st.lists(st.integers(0, 100), min_size=1, max_size=10),
)
def test_audience_counts_subscribers_with_a_session_at_that_time(cuts: list[list[int]], when: list[int]) -> None:
    people = [[(a, b) for a, b in zip(own[::2], own[1::2], strict=False)] for own in cuts]
    spans = [span for own in people for span in own]
    sessions_table = pl.DataFrame(
        {"start_time": [at(a) for a, _ in spans], "end_time": [at(b) for _, b in spans]},
        schema={"start_time": TIME, "end_time": TIME},
    )
    shown = broadcasts(impressions([("x", None, "o", each) for each in when]), 0)
    for row in add_audience(shown, sessions_table).to_dicts():
        moment = (row["broadcast_time"] - micros(0)) / 1_000_000
        assert row["audience_count"] == sum(any(a <= moment <= b for a, b in own) for own in people)


def test_fees_are_exact_and_unlisted_ad_has_a_reason() -> None:
    billing = config.parse(
        {
            "currency": "EUR",
            "advertisers": [{"name": "acme", "ads": ["spring-*"], "broadcast_fee": 1, "subscriber_fee": "0.0125"}],
        }
    )
    shown = broadcasts(impressions([("spring-1", None, "o", 0), ("mystery", None, "o", 0)]), 0)
    audience = shown.with_columns(audience_count=pl.lit(3, pl.Int64))
    found = {row["ad_name"]: row for row in add_fees(audience, billing).to_dicts()}
    assert (found["spring-1"]["advertiser"], found["spring-1"]["fee"]) == ("acme", Decimal("1.0375"))
    assert (found["mystery"]["advertiser"], found["mystery"]["fee"]) == (None, Decimal(0))
    assert "no advertiser" in found["mystery"]["reason"]


def test_ad_fees_are_computed_from_tapes(tmp_path: Path) -> None:
    (tmp_path / "billing.toml").write_text(
        """
        time_zone = "Europe/Berlin"
        currency = "EUR"
        [[advertisers]]
        name = "acme"
        ads = ["spring"]
        broadcast_fee = 0.5
        subscriber_fee = 0.0125
        """
    )
    rows = [
        {"kind": "identification", "event_time": at(n), "peer": "o1", "author": f"p{n}", "name": f"s{n}"}
        for n in range(5)
    ]
    rows += [
        {"kind": EventKind.AD_IMPRESSION.value, "event_time": at(when), "peer": peer, "name": name}
        for when, peer, name in [
            (2, "o1", "spring"),  # before midnight in Berlin, to the 3 subscribers connected by then
            (3, "o2", "spring"),
            (1800, "o1", "spring"),  # to 5
            (3700, "o1", "spring"),  # in the next month: the tails of an hour are over
            (1800, "o1", "mystery"),
        ]
    ]
    rows += [
        {"kind": EventKind.AD_IMPRESSION.value, "event_time": at(5), "peer": "o1", "name": "spring", "channel": "d"}
    ]
    rows += [{"kind": "identification", "event_time": at(5), "peer": "o1", "author": "p", "name": "s", "channel": "e"}]
    billing = str(tmp_path / "billing.toml")
    tables = build_in_memory(event_table(*rows), "ad_fees", billing_file=billing)
    found = [
        (
            row["channel"],
            row["ad_name"],
            (row["broadcast_time"] - BEGIN).total_seconds(),
            row["impression_count"],
            row["audience_count"],
            row["fee"],
        )
        for row in tables["ad_broadcasts"].to_dicts()
    ]
    assert sorted(found) == [
        ("c", "mystery", 1800, 1, 5, Decimal(0)),
        ("c", "spring", 2, 2, 3, Decimal("0.5375")),
        ("c", "spring", 1800, 1, 5, Decimal("0.5625")),
        ("c", "spring", 3700, 1, 0, Decimal("0.5")),
        ("d", "spring", 5, 1, 0, Decimal("0.5")),
    ]
    fees = tables["ad_fees"].sort("billing_month", "channel", "advertiser").to_dicts()
    assert [
        (row["billing_month"], row["channel"], row["advertiser"], row["fee_unrounded"], row["fee"]) for row in fees
    ] == [
        ("2027-01", "c", None, Decimal(0), Decimal(0)),
        ("2027-01", "c", "acme", Decimal("1.1"), Decimal("1.1")),
        ("2027-01", "d", "acme", Decimal("0.5"), Decimal("0.5")),
        ("2027-02", "c", "acme", Decimal("0.5"), Decimal("0.5")),
    ]
    assert [row["broadcast_count"] for row in fees] == [1, 2, 1, 1]
