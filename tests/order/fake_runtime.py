"""`FakeOrderRuntime`: a replica alone, with a clock that the test moves and a record of all that it sends."""

from collections.abc import Callable
from typing import Any

from broadloom.order.codec import OrderMessage, decode
from broadloom.order.log import EpochStart, LogEntry, OrderLog
from broadloom.order.messages import Assign, NewEpoch, Run, Submit
from broadloom.order.model import Entry, Epoch, OrderEvent, Placed
from broadloom.order.replica import Replica
from broadloom.protocol.requests.outgoing import OutcomeKind

ME, SEQUENCER, OTHER, HOSTILE = 500, 900, 300, 666
CONVERSATION = 1
EPOCH = Epoch(1, SEQUENCER)


class FakeTimer:
    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeOrderRuntime:
    def __init__(self, **options: Any) -> None:
        self.clock_s = 100.0
        self.present = {ME, SEQUENCER, OTHER, HOSTILE}
        self.names: dict[int, str] = {}
        self.is_alone = False
        self.broadcasts: list[OrderMessage] = []
        self.tells: list[tuple[int, OrderMessage]] = []
        self.requests: list[tuple[int, OrderMessage, Callable[[OutcomeKind, bytes], None]]] = []
        self.given_up: list[OrderMessage] = []
        self.delivered: list[Entry] = []
        self.events: list[OrderEvent] = []
        self.placed: dict[int, Placed] = {}
        self._timers: list[tuple[float, FakeTimer, Callable[..., None], tuple[Any, ...]]] = []
        self.peer_id = ME
        if "voters" in options:
            self.names = {ME: "a", SEQUENCER: "b", OTHER: "c"}
        self.replica = Replica(self, CONVERSATION, **options)
        self.replica.start()

    def now(self) -> float:
        return self.clock_s

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> FakeTimer:
        timer = FakeTimer()
        self._timers.append((self.clock_s + delay_s, timer, callback, args))
        return timer

    def run_for(self, duration_s: float) -> None:
        end = self.clock_s + duration_s
        while due := [each for each in self._timers if each[0] <= end]:
            first = min(due, key=lambda each: each[0])
            self._timers.remove(first)
            self.clock_s = max(self.clock_s, first[0])
            if not first[1].is_cancelled:
                first[2](*first[3])
        self.clock_s = end

    def pause(self, duration_s: float) -> None:
        """The program does not run for this time. Then its timers run first."""
        self.clock_s += duration_s
        self.run_for(0)

    def broadcast(self, data: bytes) -> None:
        self.broadcasts.append(decode(data))

    def tell(self, peer_id: int, data: bytes) -> None:
        self.tells.append((peer_id, decode(data)))

    def request(
        self, peer_id: int, data: bytes, timeout_s: float, on_outcome: Callable[[OutcomeKind, bytes], None]
    ) -> Callable[[], None]:
        message = decode(data)
        self.requests.append((peer_id, message, on_outcome))
        return lambda: self.given_up.append(message)

    def is_present(self, peer_id: int) -> bool:
        return peer_id in self.present

    def may_send(self, peer_id: int) -> bool:
        return True

    def name_of(self, peer_id: int) -> str:
        return self.names.get(peer_id, "")

    def deliver(self, entry: Entry) -> None:
        self.delivered.append(entry)

    def on_placed(self, number: int, placed: Placed) -> None:
        self.placed[number] = placed

    def emit(self, event: OrderEvent) -> None:
        self.events.append(event)

    # -- what honest members send

    def follow(self, enrolled: tuple[int, ...] = ()) -> None:
        """Follow `SEQUENCER` in its first epoch."""
        lineage = (EpochStart(EPOCH, 1),)
        everyone = (ME, SEQUENCER, OTHER)
        self.replica.on_message(
            SEQUENCER,
            NewEpoch(CONVERSATION, EPOCH, 0, bytes(16), 0, lineage, everyone, everyone, enrolled),
        )
        assert self.replica.is_following

    def order(self, *texts: bytes, author: int = OTHER, epoch: Epoch = EPOCH) -> None:
        """The author submits, and the sequencer assigns."""
        log = self.replica.log
        number = log.last_numbers.get(author, 0) + 1
        entries = [LogEntry(author, number + place, 0, b"", text) for place, text in enumerate(texts)]
        for entry in entries:
            self.replica.on_message(author, Submit(CONVERSATION, entry.number, b"", entry.data))
        chain = log.check(entries)
        runs = (Run(author, number, len(entries), 0),)
        self.replica.on_message(epoch.sequencer, Assign(CONVERSATION, epoch, log.end + 1, runs, chain, 0))

    def sent(self, kind: type) -> list[Any]:
        return [message for message in self.broadcasts if isinstance(message, kind)]


def log_of(*entries: LogEntry, lineage: tuple[EpochStart, ...] = (EpochStart(EPOCH, 1),)) -> OrderLog:
    log = OrderLog(1000, 1 << 20)
    for entry in entries:
        log.append(entry)
    log.set_lineage(lineage)
    return log
