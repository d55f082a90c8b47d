"""A tape as a history: what all peers recorded, merged into one fabric over time.

A link is drawn from the first record of either end until neither end claims it. A crashed peer recorded nothing about
its end: it is when its neighbors lost the link, after its own last record. Only a few messages per second are shown
on their way.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from broadloom.errors import BroadloomError
from broadloom.protocol.events import LinkDownReason
from broadloom.record import read
from broadloom.record.arrow_import import pa, pc, pq
from broadloom.record.schema import EventKind
from broadloom.testing.cluster.timeline import (
    Change,
    LinkAdded,
    LinkRemoved,
    MessageHop,
    MessageSent,
    MessagesMissed,
    PeerAdded,
    PeerRemoved,
)
from broadloom.web.history import FabricHistory
from broadloom.web.tape_annotations import TapeAnnotator

ROWS_MAX = 20_000_000
"""More rows do not fit into the memory of a small machine; the pipeline takes any number."""
SAMPLE_INTERVAL_S = 0.5
"""Maximum rate of messages shown, in tape time."""
HOPS_MAX = 400_000
"""Hops of shown messages; beyond this, fewer messages are shown."""

CRASH_DETECTION_S = 3.0
"""Survivors have noticed a crash by then; a peer that has not crashed with it."""

_CRASH_REASONS = (LinkDownReason.CONNECTION_LOST.value, LinkDownReason.HEARTBEAT_TIMEOUT.value)
_FABRIC = (EventKind.JOINED, EventKind.LEFT, EventKind.LINK_UP, EventKind.LINK_DOWN, EventKind.MISSED)


class ReplayError(BroadloomError):
    """Nothing can be replayed; the text says why."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A tape, read."""

    path: Path
    channel: str
    """First digits of the channel ID."""
    history: FabricHistory
    messages: int
    sampled_messages: int
    """Messages shown on their way."""

    @property
    def sentence(self) -> str:
        """What the page shows."""
        text = f"Channel {self.channel}, as its peers recorded it."
        if self.sampled_messages < self.messages:
            text += f" {self.sampled_messages:,} of {self.messages:,} messages are shown on their way."
        return text


def replay(path: Path, channel: str | None = None) -> Replay:
    """Read a tape; of several channels the one whose ID starts with these digits, or the one with most rows."""
    channel = channel or _largest_channel(path)
    fabric = _sorted(read(path, channel=channel, kinds=_FABRIC))
    if not len(fabric):
        raise ReplayError(f"{path} has no peers or links: record it with broadloom record or broadloom sim run --tape")
    sent = read(
        path, channel=channel, kinds=[EventKind.SENT], columns=["event_time", "author", "sequence", "size_bytes"]
    )
    steps = read(
        path,
        channel=channel,
        kinds=[EventKind.RECEIVED],
        columns=["event_time", "peer", "author", "sequence", "neighbor", "hops"],
    )
    samples = _sample_messages(sent, steps)
    changes = [*_fabric_changes(fabric, _last_seen(path, channel)), *samples]
    changes.sort(key=lambda each: each.at_s)
    history = FabricHistory(changes[0].at_s, entries_max=len(changes) * 2 + 1000)
    TapeAnnotator(history, changes, _estimates(steps), _degree(fabric)).run()
    sampled_messages = sum(isinstance(each, MessageSent) for each in samples)
    return Replay(path, channel, history, sent.num_rows, sampled_messages)


def tapes_in(folder: Path) -> list[Path]:
    """The directory itself if it is a tape, and all tapes directly in it."""
    if not folder.is_dir():
        return []
    found = [each for each in (folder, *sorted(folder.iterdir())) if each.is_dir() and any(each.glob("channel=*"))]
    return [each for each in found if any(each.glob("channel=*/event_date=*/[!._]*.parquet"))]


def _largest_channel(path: Path) -> str:
    rows: defaultdict[str, int] = defaultdict(int)
    if not path.is_dir():
        raise ReplayError(f"there is no tape at {path}")
    for file in path.glob("channel=*/event_date=*/[!._]*.parquet"):
        try:
            rows[file.parent.parent.name.partition("=")[2]] += pq.read_metadata(file).num_rows
        except (pa.ArrowException, OSError) as problem:
            raise ReplayError(f"{file} cannot be read: {problem}") from problem
    if not rows:
        raise ReplayError(
            f"{path} is not a tape yet: it has no finished file. A recorder finishes its first file within a minute"
        )
    channel, count = max(rows.items(), key=lambda each: each[1])
    if count > ROWS_MAX:
        raise ReplayError(
            f"{path} has {count:,} rows, more than the {ROWS_MAX:,} that can be replayed; use broadloom pipeline"
        )
    return channel


def _sorted(rows: pa.Table) -> list[dict[str, Any]]:
    """In order of time; rows of one peer with equal times in recorded order."""
    columns = [
        "kind",
        "event_time",
        "peer",
        "neighbor",
        "reason",
        "author",
        "sequence",
        "last_sequence",
        "name",
        "ordinal",
    ]
    chosen = rows.select(columns).sort_by([("event_time", "ascending"), ("ordinal", "ascending")])
    return list(chosen.to_pylist())


def _last_seen(path: Path, channel: str) -> dict[str, float]:
    """Time of the last record of each peer."""
    rows = read(path, channel=channel, columns=["peer", "event_time"])
    last = rows.group_by("peer").aggregate([("event_time", "max")])
    return {each["peer"]: _unix(each["event_time_max"]) for each in last.to_pylist() if each["peer"] is not None}


def _fabric_changes(rows: list[dict[str, Any]], last_seen: dict[str, float]) -> Iterator[Change]:
    """Peers that joined and left, and each link once."""
    crashed_at = _find_crashes(rows, last_seen)
    crashes = sorted(crashed_at.items(), key=lambda each: -each[1])
    claims: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
    """The ends that claim this link."""
    present: set[int] = set()

    def unclaim(peer: int, pair: tuple[int, int], at_s: float) -> Iterator[Change]:
        if peer in claims.get(pair, ()):
            claims[pair].discard(peer)
            if not claims[pair]:
                del claims[pair]
                yield LinkRemoved(at_s, *pair)

    def remove(peer: int, at_s: float, how: str) -> Iterator[Change]:
        for pair in [each for each in claims if peer in each]:
            yield from unclaim(peer, pair, at_s)
        if peer in present:
            present.discard(peer)
            yield PeerRemoved(at_s, peer, how)

    for row in rows:
        at_s, peer, kind = _unix(row["event_time"]), int(row["peer"], 16), row["kind"]
        while crashes and crashes[-1][1] <= at_s:
            crashed, when = crashes.pop()
            yield from remove(int(crashed, 16), when, "crashed")
        if kind == EventKind.JOINED.value and peer not in present:
            present.add(peer)
            yield PeerAdded(at_s, peer, row["name"] or row["peer"][:6])
        elif kind == EventKind.LEFT.value:
            yield from remove(peer, at_s, "left")
        elif kind == EventKind.MISSED.value:
            yield MessagesMissed(at_s, peer, int(row["author"], 16), row["sequence"], row["last_sequence"])
        elif kind in (EventKind.LINK_UP.value, EventKind.LINK_DOWN.value):
            other = int(row["neighbor"], 16)
            pair = (min(peer, other), max(peer, other))
            if kind == EventKind.LINK_DOWN.value:
                yield from unclaim(peer, pair, at_s)
            else:
                if pair not in claims:
                    yield LinkAdded(at_s, *pair)
                claims[pair].add(peer)
    for crashed, when in reversed(crashes):
        yield from remove(int(crashed, 16), when, "crashed")


def _degree(rows: list[dict[str, Any]]) -> int:
    """The most links that a peer recorded at once: no peer has more than its degree."""
    links: defaultdict[str, set[str]] = defaultdict(set)
    most = 0
    for row in rows:
        if row["kind"] == EventKind.LINK_UP.value:
            links[row["peer"]].add(row["neighbor"])
            most = max(most, len(links[row["peer"]]))
        elif row["kind"] == EventKind.LINK_DOWN.value:
            links[row["peer"]].discard(row["neighbor"])
    return most


def _find_crashes(rows: list[dict[str, Any]], last_seen: dict[str, float]) -> dict[str, float]:
    crashed_at: dict[str, float] = {}
    claims: defaultdict[str, set[str]] = defaultdict(set)
    left = {row["peer"] for row in rows if row["kind"] == EventKind.LEFT.value}
    for row in rows:
        peer, other = row["peer"], row["neighbor"]
        if row["kind"] == EventKind.LINK_UP.value:
            claims[peer].add(other)
        elif row["kind"] == EventKind.LINK_DOWN.value:
            claims[peer].discard(other)
            at_s = _unix(row["event_time"])
            if row["reason"] in _CRASH_REASONS and other not in left and at_s >= last_seen.get(other, at_s + 1):
                crashed_at.setdefault(other, at_s)
    return crashed_at | _find_unobserved_crashes(crashed_at, claims, left, last_seen)


def _find_unobserved_crashes(
    crashed_at: dict[str, float], claims: dict[str, set[str]], left: set[str], last_seen: dict[str, float]
) -> dict[str, float]:
    """Peers whose neighbors all crashed with them, so that no record remains."""
    noticed_by = max(last_seen.values()) - CRASH_DETECTION_S
    found: dict[str, float] = {}
    todo = [each for each in crashed_at if crashed_at[each] < noticed_by]
    while todo:
        crashed = todo.pop()
        at_s = crashed_at[crashed] if crashed in crashed_at else found[crashed]
        for other in claims[crashed]:
            is_known = other in crashed_at or other in found or other in left
            if not is_known and crashed in claims[other] and last_seen.get(other, at_s + 1) <= at_s:
                found[other] = at_s
                todo.append(other)
    return found


def _sample_messages(sent: pa.Table, steps: pa.Table) -> list[Change]:
    """A few messages per second, with all their hops."""
    every_s = SAMPLE_INTERVAL_S
    while True:
        chosen = _space_out(sent, every_s)
        keys = pa.array([f"{each.author:016x}/{each.sequence}" for each in chosen], pa.string())
        step_keys = pc.binary_join_element_wise(steps["author"], pc.cast(steps["sequence"], pa.string()), "/")
        sampled = steps.filter(pc.is_in(step_keys, keys))
        if sampled.num_rows <= HOPS_MAX:
            break
        every_s *= 2
    hops = (
        MessageHop(
            _unix(each["event_time"]),
            int(each["author"], 16),
            each["sequence"],
            int(each["neighbor"], 16),
            int(each["peer"], 16),
            each["hops"],
        )
        for each in sampled.to_pylist()
    )
    return [*chosen, *hops]


def _space_out(sent: pa.Table, every_s: float) -> list[MessageSent]:
    chosen: list[MessageSent] = []
    for each in sent.sort_by("event_time").to_pylist():
        at_s = _unix(each["event_time"])
        if not chosen or at_s - chosen[-1].at_s >= every_s:
            chosen.append(MessageSent(at_s, int(each["author"], 16), each["sequence"], each["size_bytes"]))
    return chosen


def _estimates(steps: pa.Table) -> list[tuple[float, int]]:
    """When a message was first seen to travel this far: the basis of the peers' diameter estimate."""
    if not steps.num_rows:
        return []
    first = steps.group_by("hops").aggregate([("event_time", "min")]).sort_by("hops").to_pylist()
    return [(_unix(each["event_time_min"]), each["hops"]) for each in first]


def _unix(moment: datetime) -> float:
    return moment.timestamp()
