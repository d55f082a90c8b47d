"""Injects single faults into a copy of a tape (recorded, simulated or synthetic) and returns exactly what it injected.

One injected fault is one finding of the audit, no more. So it is placed where nothing else goes wrong, and where the
audit can prove it: a delivery is taken from between others of the same author, never from the end, where it may have
been in flight.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import polars as pl

from broadloom.errors import BroadloomError
from broadloom.pipeline.analysis.frames import arrow, frame, with_schema
from broadloom.record.arrow_import import pq
from broadloom.record.reader import read
from broadloom.record.schema import CHANNEL_DIGITS, CHANNEL_KEY, file_schema
from tools.synthetic.forgery import FAR_NUMBERS, forged

DELIVERIES_AROUND_MIN = 2
"""Deliveries of the same author required before and after a modified one."""

_CONTENT = [
    *("author", "sequence", "hops", "size_bytes", "group_id", "parent_author", "parent_sequence", "topic", "payload"),
    *("member", "member_sequence", "parent_member", "parent_member_sequence"),
]
"""The columns about the message; the others say when and where it was delivered."""


class FaultKind(Enum):
    """The value is the finding, then what distinguishes faults with the same finding."""

    REMOVED = "missing"
    DUPLICATED = "duplicate"
    SWAPPED = "out_of_order"
    REPLY_BEFORE_PARENT = "reply_before_parent"
    RECEIVER_NOT_MEMBER = "receiver_not_member"
    DELIVERED_TO_AUTHOR = "delivered_to_author"
    REPORTED_MISSED = "reported_missed"
    FORGED_DELIVERY = "forged delivery"
    FORGED_RECEIPT = "forged receipt"
    FORGED_SENDING = "forged sending"
    ADDED_DELIVERY = "forged, added delivery"
    UNRECORDED_SENDING = "not_recorded"

    @property
    def finding(self) -> str:
        return re.split("[ ,]", self.value)[0]


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """The finding that the audit should report."""

    finding: str
    channel: str
    author: str
    sequence: int
    receiver: str


class CannotInjectError(BroadloomError):
    """The tape has no suitable delivery for this fault."""


def inject(tape: Path | str, to: Path | str, faults: Sequence[FaultKind], seed: int = 1) -> list[InjectedFault]:
    """Copy a tape and inject these faults, one after the other."""
    rows = frame(read(tape))
    injected = []
    rng = random.Random(seed)
    touched: set[tuple[str, str]] = set()
    for fault in faults:
        # Each pair of author and receiver is used once, so that one fault does not hide another.
        rows, done = _INJECTORS[fault](rows, rng, touched)
        touched.add((done.author, done.receiver))
        injected.append(done)
    write(rows, to, full_channel_ids(tape))
    return injected


def full_channel_ids(tape: Path | str) -> dict[str, str]:
    """Full channel IDs by the digits in the folder name: only the files have them."""
    found = {}
    for path in Path(tape).glob("channel=*/event_date=*/*.parquet"):
        if not path.name.startswith("."):
            full = (pq.read_schema(path).metadata or {}).get(CHANNEL_KEY, b"").decode()
            found[full[:CHANNEL_DIGITS]] = full
    return found


def write(rows: pl.DataFrame, to: Path | str, ids: dict[str, str]) -> None:
    """One file per channel, date and run."""
    for (channel, day, run), part in rows.sort("ordinal").group_by(
        ["channel", "event_date", "run_id"], maintain_order=True
    ):
        folder = Path(to) / f"channel={channel}" / f"event_date={day}"
        folder.mkdir(parents=True, exist_ok=True)
        schema = file_schema(ids[str(channel)], str(run))
        table = with_schema(arrow(part.drop("channel", "event_date")), schema)
        pq.write_table(table, folder / f"{run}-000001.parquet", compression="zstd", write_page_checksum=True)


def _delivered(rows: pl.DataFrame) -> pl.DataFrame:
    """Deliveries with their position among those of the same author to the same receiver."""
    pair = ["channel", "author", "peer"]
    got = rows.with_row_index("row").filter(pl.col("kind") == "delivered").sort("ordinal")
    return got.with_columns(
        pl.int_range(pl.len()).over(pair).alias("place"),
        pl.len().over(pair).alias("places"),
        pl.col("row").shift(-1).over(pair).alias("next_row"),
        pl.col("ordinal").shift(1).over(pair).alias("before_ordinal"),
        pl.col("ordinal").shift(-1).over(pair).alias("after_ordinal"),
        pl.len().over([*pair, "sequence"]).alias("delivery_count"),
    )


def _inner(rows: pl.DataFrame, touched: set[tuple[str, str]]) -> pl.DataFrame:
    """Deliveries with enough others of the same author before and after."""
    got = _delivered(rows)
    pairs = pl.DataFrame(sorted(touched), {"author": pl.String, "peer": pl.String}, orient="row")
    got = got.join(pairs, ["author", "peer"], "anti")
    inside = pl.col("place").is_between(
        DELIVERIES_AROUND_MIN, pl.col("places").cast(pl.Int64) - 1 - DELIVERIES_AROUND_MIN
    )
    return got.filter(inside & (pl.col("delivery_count") == 1)).sort("row")


def _choose(candidates: pl.DataFrame, rng: random.Random, fault: FaultKind) -> dict[str, object]:
    if not candidates.height:
        raise CannotInjectError(f"this tape has no delivery suitable for {fault.name.lower()}")
    return candidates.row(rng.randrange(candidates.height), named=True)


def _injected(fault: FaultKind, place: dict[str, object]) -> InjectedFault:
    return InjectedFault(
        fault.finding, str(place["channel"]), str(place["author"]), _int(place["sequence"]), str(place["peer"])
    )


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _parents(rows: pl.DataFrame) -> pl.DataFrame:
    """Messages with replies."""
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
    return _with_row(rows, rows[_int(place["row"])]), _injected(FaultKind.DUPLICATED, place)


def _swapped(
    rows: pl.DataFrame, rng: random.Random, touched: set[tuple[str, str]]
) -> tuple[pl.DataFrame, InjectedFault]:
    """Swap a delivery with the next of the same author. The first, now late, is the violation; it has no replies."""
    places = _inner(rows, touched).join(_parents(rows), ["author", "sequence"], "anti")
    replies = rows.with_row_index("next_row").drop_nulls("parent_author").select("next_row")
    place = _choose(places.join(replies, "next_row", "anti").sort("row"), rng, FaultKind.SWAPPED)
    return _exchanged(rows, _int(place["row"]), _int(place["next_row"])), _injected(FaultKind.SWAPPED, place)


def _reply_before_parent(
    rows: pl.DataFrame, rng: random.Random, touched: set[tuple[str, str]]
) -> tuple[pl.DataFrame, InjectedFault]:
    """Swap a reply and its parent, where no other message of their authors comes in between."""
    inner = _inner(rows, touched)
    keys = ["channel", "peer"]
    names = {"author": "parent_author", "sequence": "parent_sequence"}
    first = inner.select(
        *keys, *(pl.col(name).alias(other) for name, other in names.items()), "row", "after_ordinal", "ordinal"
    )
    pairs = inner.drop_nulls("parent_author").join(
        first, [*keys, "parent_author", "parent_sequence"], "inner", suffix="_parent"
    )
    replies = rows.filter(pl.col("kind") == "delivered").drop_nulls("parent_author")
    earliest = replies.group_by(*keys, "parent_author", "parent_sequence").agg(
        pl.col("ordinal").min().alias("first_reply_ordinal")
    )
    itself = replies.select(*keys, pl.col("parent_author").alias("author"), pl.col("parent_sequence").alias("sequence"))
    pairs = pairs.join(earliest, [*keys, "parent_author", "parent_sequence"], "left").join(
        itself.unique(), [*keys, "author", "sequence"], "anti"
    )
    alone = (
        (pl.col("author") != pl.col("parent_author"))
        & (pl.col("after_ordinal_parent") > pl.col("ordinal"))
        & (pl.col("before_ordinal") < pl.col("ordinal_parent"))
        & (pl.col("first_reply_ordinal") == pl.col("ordinal"))
    )
    place = _choose(pairs.filter(alone).sort("row"), rng, FaultKind.REPLY_BEFORE_PARENT)
    return _exchanged(rows, _int(place["row"]), _int(place["row_parent"])), _injected(
        FaultKind.REPLY_BEFORE_PARENT, place
    )


def _receiver_not_member(
    rows: pl.DataFrame, rng: random.Random, touched: set[tuple[str, str]]
) -> tuple[pl.DataFrame, InjectedFault]:
    """Move the first delivery of a peer before all its other rows, when it had no link yet."""
    keys = ["channel", "peer"]
    numbered = rows.with_row_index("row")
    joined = numbered.filter(pl.col("kind") == "joined").select(*keys, "run_id")
    began = (
        numbered.sort("ordinal")
        .unique(keys, keep="first")
        .select(*keys, "run_id", "ordinal", "event_time", "event_date")
    )
    got = numbered.filter(pl.col("kind") == "delivered").sort("ordinal").unique(keys, keep="first")
    used = pl.DataFrame(sorted(touched), {"author": pl.String, "peer": pl.String}, orient="row")
    places = got.join(joined, [*keys, "run_id"], "semi").join(began, [*keys, "run_id"], "inner", suffix="_begin")
    place = _choose(places.join(used, ["peer"], "anti").sort("row"), rng, FaultKind.RECEIVER_NOT_MEMBER)
    row, to = _int(place["row"]), _int(place["ordinal_begin"])
    early = rows[row].with_columns(
        pl.lit(to, pl.Int64).alias("ordinal"),
        *(pl.lit(place[f"{name}_begin"]).alias(name) for name in ("event_time", "event_date")),
    )
    # All later rows of the run move up by one, to make room.
    later = (pl.col("run_id") == str(place["run_id"])) & (pl.col("ordinal") >= to)
    rest = _without(rows, row).with_columns(pl.when(later).then(pl.col("ordinal") + 1).otherwise("ordinal"))
    return pl.concat([rest, early.cast(rows.schema).select(rows.columns)]), _injected(
        FaultKind.RECEIVER_NOT_MEMBER, place
    )


def _reported_missed(
    rows: pl.DataFrame, rng: random.Random, touched: set[tuple[str, str]]
) -> tuple[pl.DataFrame, InjectedFault]:
    """Replace a delivery by a report that the message was missed: no violation."""
    place = _choose(_inner(rows, touched), rng, FaultKind.REPORTED_MISSED)
    row = _int(place["row"])
    kept = ("ordinal", "run_id", "event_time", "peer", "author", "sequence", "channel", "event_date")
    nothing = [pl.lit(None, kind).alias(name) for name, kind in rows.schema.items() if name not in kept]
    report = (
        rows[row]
        .with_columns(nothing)
        .with_columns(pl.lit("missed").alias("kind"), pl.col("sequence").alias("last_sequence"))
    )
    return pl.concat([_without(rows, row), report.select(rows.columns)]), _injected(FaultKind.REPORTED_MISSED, place)


def _delivered_to_author(
    rows: pl.DataFrame, rng: random.Random, touched: set[tuple[str, str]]
) -> tuple[pl.DataFrame, InjectedFault]:
    """Add a delivery of a message at its own author."""
    kind = FaultKind.DELIVERED_TO_AUTHOR
    place = _choose(_sendings(rows, touched), rng, kind)
    row = rows[_int(place["row"])].with_columns(pl.lit("delivered").alias("kind"), pl.lit(1, pl.Int64).alias("hops"))
    return _with_row(rows, row, after=True), _injected(kind, place)


def _forged_delivery(
    rows: pl.DataFrame, rng: random.Random, touched: set[tuple[str, str]]
) -> tuple[pl.DataFrame, InjectedFault]:
    return _forge(rows, rng, _inner(rows, touched), touched, FaultKind.FORGED_DELIVERY)


def _forged_receipt(
    rows: pl.DataFrame, rng: random.Random, touched: set[tuple[str, str]]
) -> tuple[pl.DataFrame, InjectedFault]:
    keys = ["channel", "author", "peer", "sequence"]
    received = rows.with_row_index("row").filter(pl.col("kind") == "received")
    places = received.join(_inner(rows, touched).select(keys), keys, "semi")
    return _forge(rows, rng, places, touched, FaultKind.FORGED_RECEIPT)


def _forged_sending(
    rows: pl.DataFrame, rng: random.Random, touched: set[tuple[str, str]]
) -> tuple[pl.DataFrame, InjectedFault]:
    return _forge(rows, rng, _sendings(rows, touched), touched, FaultKind.FORGED_SENDING)


def _forge(
    rows: pl.DataFrame, rng: random.Random, places: pl.DataFrame, touched: set[tuple[str, str]], kind: FaultKind
) -> tuple[pl.DataFrame, InjectedFault]:
    """Overwrite author or sequence number of one of these rows."""
    place = _choose(places, rng, kind)
    row = _int(place["row"])
    own = rows.filter(pl.col("channel") == place["channel"])
    changed = _unused(lambda: forged(rows[row], own, rng), touched)
    touched.add((str(place["author"]), str(place["peer"])))
    return pl.concat([_without(rows, row), changed]), _injected(kind, changed.row(0, named=True))


def _added_delivery(
    rows: pl.DataFrame, rng: random.Random, touched: set[tuple[str, str]]
) -> tuple[pl.DataFrame, InjectedFault]:
    """Add a delivery of a message that nobody sent."""
    kind = FaultKind.ADDED_DELIVERY
    place = _choose(_inner(rows, touched), rng, kind)
    number = rng.choice([1, 1_000, *FAR_NUMBERS])
    is_own = (pl.col("kind") == "sent") & (pl.col("author") == place["author"])
    # Without a sending that was forged before.
    last = _int(rows.filter(is_own & (pl.col("sequence") < FAR_NUMBERS[0]))["sequence"].max())
    sequence = pl.lit(number if number > last else last + number, pl.Int64)
    added = rows[_int(place["row"])].with_columns(sequence.alias("sequence"))
    return _with_row(rows, added, after=True), _injected(kind, added.row(0, named=True))


def _unrecorded_sending(
    rows: pl.DataFrame, rng: random.Random, touched: set[tuple[str, str]]
) -> tuple[pl.DataFrame, InjectedFault]:
    kind = FaultKind.UNRECORDED_SENDING
    place = _choose(_sendings(rows, touched), rng, kind)
    return _without(rows, _int(place["row"])), _injected(kind, place)


def _sendings(rows: pl.DataFrame, touched: set[tuple[str, str]]) -> pl.DataFrame:
    """Sendings with others of the same author before and after. `touched` has author and author."""
    author = ["channel", "author"]
    sent = rows.with_row_index("row").filter(pl.col("kind") == "sent").sort("ordinal")
    sent = sent.with_columns(place=pl.int_range(pl.len()).over(author), places=pl.len().over(author))
    inside = pl.col("place").is_between(1, pl.col("places").cast(pl.Int64) - 2)
    used = pl.DataFrame(sorted(touched), {"author": pl.String, "peer": pl.String}, orient="row")
    return sent.filter(inside).join(used, ["author", "peer"], "anti").sort("row")


def _unused(draw: Callable[[], pl.DataFrame], touched: set[tuple[str, str]]) -> pl.DataFrame:
    """Draw until author and peer are not used by another fault."""
    for _ in range(100):
        row = draw()
        if (row["author"][0], row["peer"][0]) not in touched:
            return row
    raise CannotInjectError("every author and receiver has a fault already")


def _with_row(rows: pl.DataFrame, row: pl.DataFrame, *, after: bool = False) -> pl.DataFrame:
    """Add a row at the end of its run, or right after the row with its ordinal; later rows of the run make room."""
    mine = pl.col("run_id") == row["run_id"][0]
    if not after:
        last = rows.filter(mine)["ordinal"].max()
        return pl.concat([rows, row.with_columns(pl.lit(last, pl.Int64).alias("ordinal") + 1)])
    later = mine & (pl.col("ordinal") > row["ordinal"][0])
    moved = rows.with_columns(pl.when(later).then(pl.col("ordinal") + 1).otherwise("ordinal"))
    return pl.concat([moved, row.with_columns(pl.col("ordinal") + 1)])


def _without(rows: pl.DataFrame, row: int) -> pl.DataFrame:
    return pl.concat([rows[:row], rows[row + 1 :]])


def _exchanged(rows: pl.DataFrame, one: int, other: int) -> pl.DataFrame:
    """Swap the messages of two deliveries."""
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
    FaultKind.DELIVERED_TO_AUTHOR: _delivered_to_author,
    FaultKind.REPORTED_MISSED: _reported_missed,
    FaultKind.FORGED_DELIVERY: _forged_delivery,
    FaultKind.FORGED_RECEIPT: _forged_receipt,
    FaultKind.FORGED_SENDING: _forged_sending,
    FaultKind.ADDED_DELIVERY: _added_delivery,
    FaultKind.UNRECORDED_SENDING: _unrecorded_sending,
}
