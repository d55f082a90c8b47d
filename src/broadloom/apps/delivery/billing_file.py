"""The subscribers of a service as part of a billing file: who was on which plan from which day to which."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta, tzinfo

from broadloom.apps.delivery.subscribers import Period, SubscriberRecord


def subscribers_toml(
    records: Iterable[SubscriberRecord], listing_of: Callable[[str], Mapping[str, str]], time_zone: tzinfo = UTC
) -> str:
    """`[[subscribers]]` for each period of a subscription. `listing_of` gives the channel and topic of an entry, as the
    billing file has them. A day on which a plan changed belongs to the new one."""
    blocks = []
    for record in records:
        for path, subscription in sorted(record.subscriptions.items()):
            for plan, first, last in _days(subscription.periods, time_zone):
                lines = ["[[subscribers]]", f"name = {_quoted(record.name)}"]
                lines += [f"{key} = {_quoted(value)}" for key, value in listing_of(path).items()]
                lines += [f"plan = {_quoted(plan)}", f'first_day = "{first}"']
                blocks.append("\n".join([*lines, *([f'last_day = "{last}"'] if last is not None else []), ""]))
    return "\n".join(blocks)


def _days(periods: tuple[Period, ...], time_zone: tzinfo) -> Iterator[tuple[str, date, date | None]]:
    for period, following in zip(periods, [*periods[1:], None], strict=False):
        first = _day(period.start_ms, time_zone)
        last = _day(period.end_ms, time_zone) if period.end_ms is not None else None
        if following is not None:
            before = _day(following.start_ms, time_zone) - timedelta(days=1)
            last = before if last is None else min(last, before)
        if last is None or last >= first:
            yield period.plan, first, last


def _day(ms: int, time_zone: tzinfo) -> date:
    return datetime.fromtimestamp(ms / 1000, time_zone).date()


def _quoted(text: str) -> str:
    """JSON texts are TOML texts too."""
    return json.dumps(text, ensure_ascii=False)
