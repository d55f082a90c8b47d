"""Adverts: what is one broadcast, who was there, what it costs; each against a count by hand or one by one."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.pipeline.arrow.ad_broadcasts import BROADCASTS, add_audience, add_fees, broadcasts
from broadloom.pipeline.billing import config
from broadloom.pipeline.tables import ad_broadcasts, ad_fees, channels, sessions
from broadloom.record.arrow_import import pa
from broadloom.record.schema import EventKind
from tests.pipeline.event_rows import build_inputs, event_table

BEGIN = datetime(2027, 1, 31, 22, tzinfo=UTC)
TIME = pa.timestamp("us", tz="UTC")
IMPRESSION = pa.schema([*[BROADCASTS.field(n) for n in range(5)], pa.field("observer", pa.string())])


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def impressions(rows: list[tuple[str, str | None, str, int]]) -> pa.Table:
    told = [
        {"channel": "c", "advert": advert, "group": group, "topic": None, "time": at(when), "observer": observer}
        for advert, group, observer, when in rows
    ]
    return pa.Table.from_pylist(told, schema=IMPRESSION)


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from(["x", "y"]), st.sampled_from([None, "g"]), st.sampled_from(["o1", "o2"]), st.integers(0, 60)
        ),
        max_size=25,
    )
)
def test_showings_are_put_together_as_one_by_one(rows: list[tuple[str, str | None, str, int]]) -> None:
    expected: dict[tuple, list[tuple[int, set[str]]]] = {}
    for advert, group, observer, when in sorted(rows, key=lambda row: row[3]):
        own = expected.setdefault((advert, group), [])
        if not own or when - own[-1][0] > 10:
            own.append((when, set()))
        own[-1][1].add(observer)
    got = broadcasts(impressions(rows), 10_000_000).to_pylist()
    assert {(row["advert"], row["group"], row["time"], row["shown"]) for row in got} == {
        (*key, at(when), len(observers)) for key, own in expected.items() for when, observers in own
    }
    assert len(got) == sum(len(own) for own in expected.values())


@settings(max_examples=200, deadline=None)
@given(
    cuts=st.lists(st.lists(st.integers(0, 100), max_size=8, unique=True).map(sorted), max_size=6),
    when=st.lists(st.integers(0, 100), min_size=1, max_size=10),
)
def test_the_audience_are_those_with_a_session_at_that_moment(cuts: list[list[int]], when: list[int]) -> None:
    people = [[(a, b) for a, b in zip(own[::2], own[1::2], strict=False)] for own in cuts]
    spans = [span for own in people for span in own]
    sessions_table = pa.table(
        {
            "start": pa.array([at(a) for a, _ in spans], TIME),
            "end": pa.array([at(b) for _, b in spans], TIME),
        }
    )
    shown = broadcasts(impressions([("x", None, "o", each) for each in when]), 0)
    for row in add_audience(shown, sessions_table).to_pylist():
        moment = (row["time"] - BEGIN).total_seconds()
        assert row["audience"] == sum(any(a <= moment <= b for a, b in own) for own in people)


def test_fees_are_exact_and_an_unknown_advert_says_so() -> None:
    billing = config.parse(
        {
            "currency": "EUR",
            "advertisers": [{"name": "acme", "adverts": ["spring-*"], "broadcast": 1, "subscriber": "0.0125"}],
        }
    )
    shown = broadcasts(impressions([("spring-1", None, "o", 0), ("mystery", None, "o", 0)]), 0)
    audience = shown.append_column("audience", pa.array([3, 3], pa.int64()))
    found = {row["advert"]: row for row in add_fees(audience, billing).to_pylist()}
    assert (found["spring-1"]["advertiser"], found["spring-1"]["fee"]) == ("acme", Decimal("1.0375"))
    assert (found["mystery"]["advertiser"], found["mystery"]["fee"]) == (None, Decimal(0))
    assert "no advertiser" in found["mystery"]["reason"]


def test_from_tapes_to_fees(spark, tmp_path: Path) -> None:
    (tmp_path / "billing.toml").write_text(
        """
        zone = "Europe/Berlin"
        currency = "EUR"
        [[advertisers]]
        name = "acme"
        adverts = ["spring"]
        broadcast = 0.5
        subscriber = 0.0125
        """
    )
    rows = [
        {"kind": "identification", "time": at(n), "observer": "o1", "author": f"p{n}", "name": f"s{n}"}
        for n in range(5)
    ]
    rows += [
        {"kind": EventKind.AD_IMPRESSION.value, "time": at(when), "observer": observer, "name": name}
        for when, observer, name in [
            (2, "o1", "spring"),  # before midnight in Berlin, to those who had come: 3
            (3, "o2", "spring"),
            (1800, "o1", "spring"),  # to 5
            (3700, "o1", "spring"),  # in the next month: the tails of an hour are over
            (1800, "o1", "mystery"),
        ]
    ]
    rows += [{"kind": EventKind.AD_IMPRESSION.value, "time": at(5), "observer": "o1", "name": "spring", "channel": "d"}]
    rows += [{"kind": "identification", "time": at(5), "observer": "o1", "author": "p", "name": "s", "channel": "e"}]
    tables = (channels.TABLE, sessions.TABLE, ad_broadcasts.TABLE, ad_fees.TABLE)
    inputs = build_inputs(spark, event_table(*rows), *tables, billing=str(tmp_path / "billing.toml"))
    found = [
        (
            row["channel"],
            row["advert"],
            (row["time"] - BEGIN).total_seconds(),
            row["shown"],
            row["audience"],
            row["fee"],
        )
        for row in inputs["adverts"].toArrow().to_pylist()
    ]
    assert sorted(found) == [
        ("c", "mystery", 1800, 1, 5, Decimal(0)),
        ("c", "spring", 2, 2, 3, Decimal("0.5375")),
        ("c", "spring", 1800, 1, 5, Decimal("0.5625")),
        ("c", "spring", 3700, 1, 0, Decimal("0.5")),
        ("d", "spring", 5, 1, 0, Decimal("0.5")),
    ]
    fees = inputs["advert_fees"].toArrow().to_pylist()
    assert [(row["month"], row["channel"], row["advertiser"], row["exact"], row["fee"]) for row in fees] == [
        ("2027-01", "c", None, Decimal(0), Decimal(0)),
        ("2027-01", "c", "acme", Decimal("1.1"), Decimal("1.1")),
        ("2027-01", "d", "acme", Decimal("0.5"), Decimal("0.5")),
        ("2027-02", "c", "acme", Decimal("0.5"), Decimal("0.5")),
    ]
    assert [row["broadcasts"] for row in fees] == [1, 2, 1, 1]
