"""What desks remember of subscribers: merged in any order, and exported for bills."""

import tomllib
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from broadloom.apps.delivery.billing_file import subscribers_toml
from broadloom.apps.delivery.subscribers import SubscriberRecord, Subscription, decode_record
from broadloom.pipeline.billing import config

DAY_MS = 86_400_000
CHANGES = {
    "subscribe": lambda each, now: each.subscribed("reader", now),
    "change": lambda each, now: each.subscribed("visitor", now),
    "end": lambda each, now: each.ended(now),
    "withdraw": lambda each, now: each.withdrawn(now),
    "reinstate": lambda each, now: each.reinstated(now),
}
HISTORY = st.lists(st.tuples(st.sampled_from(sorted(CHANGES)), st.integers(0, 3 * DAY_MS)), max_size=8)


def applied(history: list[tuple[str, int]]) -> Subscription:
    found, now = Subscription(), 0
    for change, after_ms in history:
        now += after_ms
        found = CHANGES[change](found, now)
    return found


@given(histories=st.lists(st.tuples(st.sampled_from(["a", "b"]), HISTORY), min_size=1, max_size=3))
def test_records_merge_in_any_order(histories: list[tuple[str, list[tuple[str, int]]]]) -> None:
    records = [SubscriberRecord("ann", {path: applied(history)}) for path, history in histories]
    merged = set()
    for order in permutations(records):
        found = order[0]
        for each in (*order[1:], *order):
            found = found.merged(each)
        assert decode_record(found.encode()) == found
        merged.add(found.encode())
    assert len(merged) == 1


@given(history=HISTORY)
def test_exported_periods_are_a_valid_billing_file(history: list[tuple[str, int]]) -> None:
    def listing(path: str) -> dict[str, str]:
        return {"channel": "00aa00aa00aa00aa", "topic": path}

    text = subscribers_toml([SubscriberRecord('ann "the reader"', {"sports/nfl": applied(history)})], listing)
    plans = {"reader": {"kind": "flat", "month": 1}, "visitor": {"kind": "hour", "hour": 1}}
    parsed = config.parse({**tomllib.loads(text), "currency": "EUR", "plans": plans})
    assert all(each.name == 'ann "the reader"' and each.topic == "sports/nfl" for each in parsed.subscribers)


def test_withdrawn_subscription_ends_and_counts_its_generation() -> None:
    found = Subscription().subscribed("reader", 5).withdrawn(9)
    assert (found.plan, found.is_withdrawn, found.generation, found.periods[0].end_ms) == (None, True, 1, 9)
    assert found.reinstated(12).subscribed("visitor", 20).plan == "visitor"
