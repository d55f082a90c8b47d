"""Growing tapes: real recorders with a clock that the test controls."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from broadloom.protocol import ChannelName
from broadloom.protocol.events import Batch, LinkDown, LinkDownReason, LinkUp, Missed, PeerState, StateChanged
from broadloom.record import Recorder, Tape, TapeSettings, read
from broadloom.record.arrow_import import pa
from broadloom.wire import Address, PeerInfo

CHANNEL = ChannelName("test", "growing")
FOLDER = f"channel={CHANNEL.id.hex()[:16]}"
BEGIN_S = 1_780_000_000.0
"""2026-05-28, 20:26:40 UTC: a multiple of ten seconds, and in the past."""
DAY = "2026-05-28"
TIMEOUT_S = 120.0
"""For Spark to process a batch on a busy machine."""


class Clock:
    def __init__(self, now: float = BEGIN_S) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def peer_info(peer: int) -> PeerInfo:
    return PeerInfo(peer, Address("127.0.0.1", 5000 + peer))


class RecordedPeers:
    """Peers of one channel that record onto one tape. Each `with` is a run."""

    def __init__(self, folder: Path, clock: Clock, peers: Iterable[int], channel: ChannelName = CHANNEL, **given: Any):
        self.clock = clock
        self.tape = Tape(folder, settings=TapeSettings(block_when_full=True, **given), wall_clock=clock)
        self.recorders: dict[int, Recorder] = {peer: self.tape.observer(channel, peer) for peer in peers}
        self._sequences = dict.fromkeys(self.recorders, 0)

    def __enter__(self) -> "RecordedPeers":
        return self

    def __exit__(self, *_problem: object) -> None:
        self.tape.close()

    def join(self) -> None:
        for recorder in self.recorders.values():
            recorder.on_event(StateChanged(PeerState.CONNECTED))

    def leave(self, peer: int) -> None:
        self.recorders[peer].on_event(StateChanged(PeerState.LEFT))

    def link(self, one: int, other: int) -> None:
        self.recorders[one].on_event(LinkUp(peer_info(other)))
        self.recorders[other].on_event(LinkUp(peer_info(one)))

    def unlink(self, one: int, other: int) -> None:
        self.recorders[one].on_event(LinkDown(peer_info(other), LinkDownReason.CONNECTION_LOST))

    def send(self, author: int, delay_s: float, step_s: float = 0.0, data: bytes = b"data") -> int:
        """Send a message that all others deliver after the delay; then advance the clock."""
        sequence = self._sequences[author] = self._sequences[author] + 1
        self.recorders[author].sent(sequence, data)
        sent_at = self.clock.now
        self.clock.now += delay_s
        for peer, recorder in self.recorders.items():
            if peer != author:
                recorder.delivered(Batch(author, sequence, [data], 1))
        self.clock.now = sent_at + step_s
        return sequence

    def report_missed(self, peer: int, author: int, first: int, last: int) -> None:
        self.recorders[peer].missed(Missed(author, first, last))


def on_tape(folder: Path) -> pa.Table:
    """All rows, read without Spark, in an order independent of the files."""
    return read(folder).sort_by([("run_id", "ascending"), ("ordinal", "ascending")])
