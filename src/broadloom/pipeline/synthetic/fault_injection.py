"""Plants single faults into an existing tape, recorded, simulated or made, and says exactly what it planted.

The rule: one planting is one finding of the audit, no more. So a place is chosen where nothing else goes wrong by it,
and where it can be proved: a delivery is taken from between others of the same author, never from the end, where it may
have been on its way. The tape's own folder stays as it is; the changed one is written anew.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import polars as pl

from broadloom.errors import BroadloomError
from broadloom.pipeline.arrow.exact import frame, to_schema
from broadloom.record.arrow_import import pq
from broadloom.record.reader import read
from broadloom.record.schema import CHANNEL_DIGITS, CHANNEL_KEY, SCHEMA, file_schema

DELIVERIES_AROUND_MIN = 2
"""A delivery is taken only if so many of the same author come before and after it."""

_CONTENT = [
    *("author", "sequence", "hops", "size", "group", "parent_author", "parent_sequence", "topic", "payload"),
    *("member", "number", "parent_member", "parent_number"),
]
"""What a delivery is of; the rest is when and where."""


class FaultKind(Enum):
    REMOVED = "missing"
    DUPLICATED = "double"
    SWAPPED = "out_of_order"
    REPLY_BEFORE_PARENT = "before_parent"
    RECEIVER_NOT_MEMBER = "not_present"
    REPORTED_MISSED = "missed_reported"


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """As the audit should tell it."""

    finding: str
    channel: str
    author: str
    sequence: int
    receiver: str


class CannotInjectError(BroadloomError):
    """The tape has no place for such a fault."""


def inject(tape: Path | str, to: Path | str, faults: Sequence[FaultKind], seed: int = 1) -> list[InjectedFault]:
    """Copy a tape, with these faults in it, one after the other."""
    rows = frame(read(tape))
    planted = []
    chance = random.Random(seed)
    touched: set[tuple[str, str]] = set()
    for fault in faults:
        # One author and receiver are used once, so that one fault does not hide another.
        rows, done = _INJECTORS[fault](rows, chance, touched)
        touched.add((done.author, done.receiver))
        planted.append(done)
    write(rows, to, full_channel_ids(tape))
    return planted


def full_channel_ids(tape: Path | str) -> dict[str, str]:
    """The channels' whole ids, by their folders' names: only the files tell them."""
    found = {}
    for path in Path(tape).glob("channel=*/day=*/*.parquet"):
        if not path.name.startswith("."):
            whole = (pq.read_schema(path).metadata or {}).get(CHANNEL_KEY, b"").decode()
            found[whole[:CHANNEL_DIGITS]] = whole
    return found


def write(rows: pl.DataFrame, to: Path | str, ids: dict[str, str]) -> None:
    """One file for each channel, day and run."""
    for (channel, day, run), part in rows.sort("ordinal").group_by(["channel", "day", "run"], maintain_order=True):
        folder = Path(to) / f"channel={channel}" / f"day={day}"
        folder.mkdir(parents=True, exist_ok=True)
        schema = file_schema(ids[str(channel)], str(run))
        table = to_schema(part.drop("channel", "day"), SCHEMA).cast(schema)
        pq.write_table(table, folder / f"{run}-000001.parquet", compression="zstd", write_page_checksum=True)


def _delivered(rows: pl.DataFrame) -> pl.DataFrame:
    """First deliveries with their places among those of the same author to the same receiver."""
    pair = ["channel", "author", "observer"]
    got = rows.with_row_index("row").filter(pl.col("kind") == "delivered").sort("ordinal")
    return got.with_columns(
        pl.int_range(pl.len()).over(pair).alias("place"),
        pl.len().over(pair).alias("places"),
        pl.col("row").shift(-1).over(pair).alias("next_row"),
        pl.col("ordinal").shift(1).over(pair).alias("before_ordinal"),
        pl.col("ordinal").shift(-1).over(pair).alias("after_ordinal"),
        pl.len().over([*pair, "sequence"]).alias("copies"),
    )


def _inner(rows: pl.DataFrame, touched: set[tuple[str, str]]) -> pl.DataFrame:
    """Deliveries that have others of the same author before and after."""
    got = _delivered(rows)
    pairs = pl.DataFrame(sorted(touched), {"author": pl.String, "observer": pl.String}, orient="row")
    got = got.join(pairs, ["author", "observer"], "anti")
    inside = pl.col("place").is_between(
        DELIVERIES_AROUND_MIN, pl.col("places").cast(pl.Int64) - 1 - DELIVERIES_AROUND_MIN
    )
    return got.filter(inside & (pl.col("copies") == 1)).sort("row")


def _choose(candidates: pl.DataFrame, rng: random.Random, fault: FaultKind) -> dict[str, object]:
    if not candidates.height:
        raise CannotInjectError(f"this tape has no place where {fault.name.lower()} could be planted alone")
    return candidates.row(rng.randrange(candidates.height), named=True)


def _injected(fault: FaultKind, place: dict[str, object]) -> InjectedFault:
    return InjectedFault(
        fault.value, str(place["channel"]), str(place["author"]), _int(place["sequence"]), str(place["observer"])
    )


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _parents(rows: pl.DataFrame) -> pl.DataFrame:
    """Messages that anybody responds to."""
    named = {"parent_author": "author", "parent_sequence": "sequence"}
    return rows.drop_nulls("parent_author").select(*named).rename(named).unique()


def _removed(
    rows: pl.DataFrame, rng: random.Random, touched: set[tuple[str, str]]
) -> tuple[pl.DataFrame, InjectedFault]:
    place = _choose(_inner(rows, touched), rng, FaultKind.REMOVED)
    return _without(rows, _int(place["row"])), _injected(FaultKind.REMOVED, place)


def _duplicated(
    rows: pl.DataFrame, rng: random.Random, touched: set[tuple[str, str]]
) -> tuple[pl.DataFrame, InjectedFault]:
    place = _choose(_inner(rows, touched), rng, FaultKind.DUPLICATED)
    row = _int(place["row"])
    last = rows.filter(pl.col("run") == place["run"])["ordinal"].max()
    again = rows[row].with_columns((pl.lit(last, pl.Int64) + 1).alias("ordinal"))
    return pl.concat([rows, again]), _injected(FaultKind.DUPLICATED, place)


def _swapped(
    rows: pl.DataFrame, rng: random.Random, touched: set[tuple[str, str]]
) -> tuple[pl.DataFrame, InjectedFault]:
    """With the next of the same author. The first of them, now late, is the guilty one; nobody responds to it."""
    places = _inner(rows, touched).join(_parents(rows), ["author", "sequence"], "anti")
    answers = rows.with_row_index("next_row").drop_nulls("parent_author").select("next_row")
    place = _choose(places.join(answers, "next_row", "anti").sort("row"), rng, FaultKind.SWAPPED)
    return _exchanged(rows, _int(place["row"]), _int(place["next_row"])), _injected(FaultKind.SWAPPED, place)


def _reply_before_parent(
    rows: pl.DataFrame, rng: random.Random, touched: set[tuple[str, str]]
) -> tuple[pl.DataFrame, InjectedFault]:
    """The response and its parent change places, where no other of their authors comes in between."""
    inner = _inner(rows, touched)
    who = ["channel", "observer"]
    names = {"author": "parent_author", "sequence": "parent_sequence"}
    first = inner.select(
        *who, *(pl.col(name).alias(other) for name, other in names.items()), "row", "after_ordinal", "ordinal"
    )
    pairs = inner.drop_nulls("parent_author").join(
        first, [*who, "parent_author", "parent_sequence"], "inner", suffix="_parent"
    )
    answered = rows.filter(pl.col("kind") == "delivered").drop_nulls("parent_author")
    earliest = answered.group_by(*who, "parent_author", "parent_sequence").agg(
        pl.col("ordinal").min().alias("answered")
    )
    itself = answered.select(*who, pl.col("parent_author").alias("author"), pl.col("parent_sequence").alias("sequence"))
    pairs = pairs.join(earliest, [*who, "parent_author", "parent_sequence"], "left").join(
        itself.unique(), [*who, "author", "sequence"], "anti"
    )
    alone = (
        (pl.col("author") != pl.col("parent_author"))
        & (pl.col("after_ordinal_parent") > pl.col("ordinal"))
        & (pl.col("before_ordinal") < pl.col("ordinal_parent"))
        & (pl.col("answered") == pl.col("ordinal"))
    )
    place = _choose(pairs.filter(alone).sort("row"), rng, FaultKind.REPLY_BEFORE_PARENT)
    return _exchanged(rows, _int(place["row"]), _int(place["row_parent"])), _injected(
        FaultKind.REPLY_BEFORE_PARENT, place
    )


def _receiver_not_member(
    rows: pl.DataFrame, rng: random.Random, touched: set[tuple[str, str]]
) -> tuple[pl.DataFrame, InjectedFault]:
    """Somebody's first delivery moves before all its other rows, when it was not even linked to anybody."""
    who = ["channel", "observer"]
    numbered = rows.with_row_index("row")
    joined = numbered.filter(pl.col("kind") == "joined").select(*who, "run")
    began = numbered.sort("ordinal").unique(who, keep="first").select(*who, "run", "ordinal", "time", "day")
    got = numbered.filter(pl.col("kind") == "delivered").sort("ordinal").unique(who, keep="first")
    used = pl.DataFrame(sorted(touched), {"author": pl.String, "observer": pl.String}, orient="row")
    places = got.join(joined, [*who, "run"], "semi").join(began, [*who, "run"], "inner", suffix="_begin")
    place = _choose(places.join(used, ["observer"], "anti").sort("row"), rng, FaultKind.RECEIVER_NOT_MEMBER)
    row, to = _int(place["row"]), _int(place["ordinal_begin"])
    early = rows[row].with_columns(
        pl.lit(to, pl.Int64).alias("ordinal"), *(pl.lit(place[f"{name}_begin"]).alias(name) for name in ("time", "day"))
    )
    # All that came later in its run moves up by one, to make room.
    later = (pl.col("run") == str(place["run"])) & (pl.col("ordinal") >= to)
    rest = _without(rows, row).with_columns(pl.when(later).then(pl.col("ordinal") + 1).otherwise("ordinal"))
    return pl.concat([rest, early.cast(rows.schema).select(rows.columns)]), _injected(
        FaultKind.RECEIVER_NOT_MEMBER, place
    )


def _reported_missed(
    rows: pl.DataFrame, rng: random.Random, touched: set[tuple[str, str]]
) -> tuple[pl.DataFrame, InjectedFault]:
    """Instead of the message, its receiver gets the report that it missed it: no promise is broken."""
    place = _choose(_inner(rows, touched), rng, FaultKind.REPORTED_MISSED)
    row = _int(place["row"])
    kept = ("ordinal", "run", "time", "observer", "author", "sequence", "channel", "day")
    nothing = [pl.lit(None, kind).alias(name) for name, kind in rows.schema.items() if name not in kept]
    report = (
        rows[row].with_columns(nothing).with_columns(pl.lit("missed").alias("kind"), pl.col("sequence").alias("last"))
    )
    return pl.concat([_without(rows, row), report.select(rows.columns)]), _injected(FaultKind.REPORTED_MISSED, place)


def _without(rows: pl.DataFrame, row: int) -> pl.DataFrame:
    return pl.concat([rows[:row], rows[row + 1 :]])


def _exchanged(rows: pl.DataFrame, one: int, other: int) -> pl.DataFrame:
    """What two deliveries of one receiver are of."""
    first, second = rows[one], rows[other]
    changed = pl.concat([first.with_columns(second.select(_CONTENT)), second.with_columns(first.select(_CONTENT))])
    rest = rows.with_row_index("row").filter(~pl.col("row").is_in([one, other])).drop("row")
    return pl.concat([rest, changed])


_INJECTORS: dict[
    FaultKind, Callable[[pl.DataFrame, random.Random, set[tuple[str, str]]], tuple[pl.DataFrame, InjectedFault]]
] = {
    FaultKind.REMOVED: _removed,
    FaultKind.DUPLICATED: _duplicated,
    FaultKind.SWAPPED: _swapped,
    FaultKind.REPLY_BEFORE_PARENT: _reply_before_parent,
    FaultKind.RECEIVER_NOT_MEMBER: _receiver_not_member,
    FaultKind.REPORTED_MISSED: _reported_missed,
}
