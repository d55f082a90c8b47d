"""Filter pushdown: Spark filters as Arrow expressions, applied where the file is read.

A filter is pushed down only if Arrow evaluates it exactly as Spark does. Filters on channel and date also prune files.
"""

from collections.abc import Callable, Iterable
from datetime import date, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

from broadloom.record.arrow_import import pa, pc
from broadloom.record.reader import TABLE_SCHEMA

_COMPARISONS: dict[type[Filter], Callable[[Any, Any], Any]] = {
    EqualTo: lambda field, value: field == value,
    GreaterThan: lambda field, value: field > value,
    GreaterThanOrEqual: lambda field, value: field >= value,
    LessThan: lambda field, value: field < value,
    LessThanOrEqual: lambda field, value: field <= value,
}


def expression(filter: Filter) -> "pc.Expression | None":
    """The filter as an Arrow expression; None if it is not pushed down."""
    name = column_of(filter)
    if name not in TABLE_SCHEMA.names:
        return None
    field, kind = pc.field(name), TABLE_SCHEMA.field(name).type
    if isinstance(filter, IsNull):
        return field.is_null()
    if isinstance(filter, IsNotNull):
        return field.is_valid()
    compare = _COMPARISONS.get(type(filter))
    if compare is not None:
        value = scalar(filter.value, kind)  # type: ignore[attr-defined]
        return None if value is None else compare(field, value)
    if isinstance(filter, In):
        values = [scalar(each, kind) for each in filter.value]
        if any(each is None for each in values):
            return None
        return field.isin(pa.array([each.as_py() for each in values if each is not None], kind))
    return None


def column_of(filter: Filter) -> str | None:
    """The column of a filter, if it has exactly one."""
    attribute: tuple[str, ...] = getattr(filter, "attribute", ())
    return attribute[0] if len(attribute) == 1 else None


def scalar(value: Any, kind: pa.DataType) -> "pa.Scalar | None":
    """The value in the type of the column; None if it is null or cannot be converted."""
    if value is None or (isinstance(value, datetime) and value.tzinfo is None):
        return None  # a naive time would mean another time in another process
    try:
        return pa.scalar(value, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


def all_of(filters: Iterable[Filter]) -> "pc.Expression | None":
    found = None
    for filter in filters:
        one = expression(filter)
        assert one is not None
        found = one if found is None else found & one
    return found


def may_match(filters: Iterable[Filter], channel: str, day: date) -> bool:
    """Whether a file of this channel and date can have matching rows."""
    chosen = [each for each in filters if column_of(each) in ("channel", "event_date")]
    if not chosen:
        return True
    row = pa.table({"channel": pa.array([channel]), "event_date": pa.array([day], pa.date32())})
    return bool(row.filter(all_of(chosen)).num_rows)
