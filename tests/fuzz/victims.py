"""Three honest peers in their own process that send to each other and report their state.

Run by the fuzzer: `python -m tests.fuzz.victims plain|tls CHANNEL`. Prints one line of JSON with the addresses, then
one line with a report every half second. Exits when standard input is closed.
"""

import asyncio
import json
import logging
import os
import sys
import time
from collections import deque
from typing import Any

import broadloom
from broadloom.protocol import Tuning
from broadloom.protocol.events import Message, Missed
from broadloom.transport.event_loop import new_event_loop

PEERS = 3
KEY = "of the fuzzer"
SEND_INTERVAL_S = 0.05
REPORT_S = 0.5
SETTINGS = Tuning(
    accept_channel_close=False,
    # Small, so that all buffers fill up soon and memory stays constant from then on.
    retention_s=30,
    retention_bytes_max=4 << 20,
    reorder_buffer_bytes_max=2 << 20,
    authors_max=500,
)
_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024


def connect_options(mode: str) -> dict[str, Any]:
    return {"tls": False} if mode == "plain" else {"key": KEY, "signed": True}


def rss_kb() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * _PAGE_KB


class Victims:
    def __init__(self, channels: list[broadloom.Channel]) -> None:
        self.channels = channels
        self.findings: list[str] = []
        self._last_contiguous = {(at.peer_id, of.peer_id): 0 for at in channels for of in channels if at is not of}
        self._sent: dict[int, deque[tuple[int, float]]] = {channel.peer_id: deque() for channel in channels}
        self.delivered = 0
        self.lag_s = 0.0
        for channel in channels:
            self._watch(channel)

    def _watch(self, channel: broadloom.Channel) -> None:
        me = channel.peer_id

        def on_message(message: Message) -> None:
            last = self._last_contiguous.get((me, message.author))
            if last is None:
                return
            if message.sequence != last + 1 or message.data != _payload(message.author, message.sequence):
                self.add_finding(f"{me:016x} received {message.sequence} of {message.author:016x} after {last}")
            self._last_contiguous[me, message.author] = message.sequence
            self.delivered += 1

        def on_event(event: object) -> None:
            if isinstance(event, Missed) and event.author in self._sent:
                self.add_finding(f"{me:016x} reported {event}")

        channel.on_message(on_message)
        channel.on_event(on_event)

    def add_finding(self, text: str) -> None:
        if len(self.findings) < 20:
            self.findings.append(text)

    async def send_traffic(self, channel: broadloom.Channel) -> None:
        sent = self._sent[channel.peer_id]
        number = 0
        while True:
            number += 1
            sent.append((number, time.monotonic()))
            try:
                await channel.broadcast(_payload(channel.peer_id, number))
            except broadloom.BroadloomError as error:
                self.add_finding(f"{channel.peer_id:016x} cannot send: {error}")
                return
            await asyncio.sleep(SEND_INTERVAL_S)

    def late_s(self) -> float:
        """Age of the oldest message that has not reached every peer."""
        late = 0.0
        for author, sent in self._sent.items():
            received_by_all = min(last for (_, each), last in self._last_contiguous.items() if each == author)
            while sent and sent[0][0] <= received_by_all:
                sent.popleft()
            if sent:
                late = max(late, time.monotonic() - sent[0][1])
        return late

    def report(self) -> dict[str, Any]:
        counters: dict[str, int] = {}
        for channel in self.channels:
            for name, count in channel.status().counters.items():
                counters[name] = counters.get(name, 0) + count
        lag_s, self.lag_s = self.lag_s, 0.0
        return {
            "rss_kb": rss_kb(),
            "late_s": round(self.late_s(), 3),
            "lag_s": round(lag_s, 3),
            "delivered": self.delivered,
            "counters": counters,
            "findings": self.findings,
        }

    async def measure_lag(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.02)
            self.lag_s = max(self.lag_s, time.monotonic() - before - 0.02)


def _payload(author: int, number: int) -> bytes:
    return b"%016x %d" % (author, number)


async def main(mode: str, name: str) -> None:
    loop = asyncio.get_running_loop()
    channels = [await broadloom.connect(name, settings=SETTINGS, **connect_options(mode)) for _ in range(PEERS)]
    victims = Victims(channels)
    for channel in channels:
        channel.on_request(lambda request: request.data)

    def on_error(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        victims.add_finding(f"in the event loop: {context.get('message')}: {context.get('exception')!r}")

    loop.set_exception_handler(on_error)
    stdin_closed = asyncio.Event()
    loop.add_reader(0, lambda: None if os.read(0, 1) else stdin_closed.set())
    tasks = [loop.create_task(victims.send_traffic(channel)) for channel in channels]
    tasks.append(loop.create_task(victims.measure_lag()))
    print_json({"victims": [(channel.peer_id, channel.status().address) for channel in channels]})
    while not stdin_closed.is_set():
        print_json(victims.report())
        try:
            await asyncio.wait_for(stdin_closed.wait(), REPORT_S)
        except TimeoutError:
            continue
    for task in tasks:
        task.cancel()
    for channel in channels:
        channel.abort()


def print_json(report: dict[str, Any]) -> None:
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    # One event loop each, so that both are tested.
    with asyncio.Runner(loop_factory=new_event_loop if sys.argv[1] == "tls" else None) as runner:
        runner.run(main(sys.argv[1], sys.argv[2]))
