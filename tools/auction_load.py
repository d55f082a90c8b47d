"""Auctions under load: `python -m tools.auction_load`. By default 1,000 bidders with 200 bids per second together.

1,000 programs do not fit on one machine, so a few peers bid for all of them. Every bidder has a ticket of its own, and
every bid is an entry with its signature, which every member verifies. Notaries and peers are real programs on loopback,
with TLS and stores; each notary has a process. The time of a bid is from the call to its receipt.

What a few peers leave out are the hops of a large fabric, which `python -m tests.apps.auction.measure` simulates, and
the connections of 1,000 bidders: a notary keeps 256, so most receipts are asked for over a new one. With `--redial` all
are. CPU time is printed for each notary and for one bidding peer: it is what a machine of their own would need.
"""

import asyncio
import json
import multiprocessing
import os
import secrets
import tempfile
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from uuid import uuid4

import typer

from broadloom import Authority, Role, Ticket
from broadloom.apps import auction
from broadloom.apps.auction.ledger import notary_names
from broadloom.apps.auction.statements import Action, Signer, Statement, signed
from broadloom.errors import BroadloomError
from broadloom.protocol import ChannelName, Tuning
from broadloom.security.certificates import utc_now
from broadloom.security.post_signer import PostSigner
from broadloom.security.verification import CertificateVerifier
from broadloom.transport.event_loop import run

NOTARIES = notary_names(3)
LOTS = 40
"""Of each process: so many that bids for one do not overtake each other."""
WARM_UP_S = 3.0
TIMEOUT_S = 30.0
POLL_S = 0.02


class Setup(NamedTuple):
    """The same in all processes."""

    channel: str
    seed: bytes
    """Of the authority."""
    directory: str
    peers: int
    """Of each bidding process."""
    bidders: int
    rate: float
    seconds: float
    redial: bool

    def ticket(self, name: str) -> Ticket:
        authority = Authority.from_seed(self.seed, ChannelName.parse(self.channel).id)
        return authority.issue_ticket(name, Role.PRODUCER, datetime.now(UTC) + timedelta(days=1))

    def signer(self, name: str) -> Signer:
        ticket = self.ticket(name)
        verifier = CertificateVerifier(ticket.authority, None, utc_now, tickets=True)
        return PostSigner(ChannelName.parse(self.channel).id, ticket.issue_certificate(), verifier, name)


class Result(NamedTuple):
    cpu_us: float
    """For each entry that was applied."""
    took_ms: list[float]
    failed: list[str]


class Times:
    """Waits for the others, and measures what this process computes between the beginning and the end."""

    def __init__(self, begin: Event, end: Event) -> None:
        self._begin, self._end = begin, end
        self._cpu_s = 0.0
        self._number = 0

    async def begin(self, room: auction.Room) -> None:
        await _wait_for(self._begin)
        await asyncio.sleep(WARM_UP_S)
        self._cpu_s, self._number = time.process_time(), room.ledger.number

    async def end(self) -> None:
        await _wait_for(self._end)

    def cpu_us(self, room: auction.Room) -> float:
        """For each entry since the beginning."""
        return (time.process_time() - self._cpu_s) * 1e6 / max(1, room.ledger.number - self._number)


async def _wait_for(event: Event) -> None:
    while not event.is_set():  # noqa: ASYNC110
        await asyncio.sleep(POLL_S)


async def _notary(setup: Setup, number: int, times: Times) -> Result:
    name = NOTARIES[number]
    store = Path(setup.directory) / f"{name}.db"
    async with auction.join(setup.channel, ticket=setup.ticket(name), store=store) as room:
        await times.begin(room)
        await asyncio.sleep(setup.seconds)
        cpu_us = times.cpu_us(room)
        await times.end()
        return Result(cpu_us, [], [])


async def _bidding(setup: Setup, number: int, times: Times, ready: Any) -> Result:
    names = [f"bidder-{number}-{each}" for each in range(setup.bidders)]
    bidders = [setup.signer(name) for name in names]
    seller = setup.signer(f"seller-{number}")
    settings = Tuning(direct_dials_per_s=10_000) if setup.redial else Tuning()
    result = Result(0.0, [], [])
    async with AsyncExitStack() as stack:
        rooms = []
        for peer in range(setup.peers):
            ticket = setup.ticket(f"peer-{number}-{peer}")
            rooms.append(await stack.enter_async_context(auction.join(setup.channel, ticket=ticket, settings=settings)))
        lots = [f"lot-{number}-{each}" for each in range(LOTS)]
        for lot in lots:
            end = datetime.now(UTC) + timedelta(hours=1)
            terms = auction.Lot(id=lot, kind=auction.Kind.ENGLISH, start=Decimal(1), step=Decimal(1), end=end)
            await _submit(rooms[0], seller, Action.OPEN, lot, terms=terms.as_dict())
        for room in rooms:
            await room.wait_until_current(TIMEOUT_S)
        ready.put(number)
        await _wait_for(times._begin)
        begin = asyncio.create_task(times.begin(rooms[0]))
        tasks: set[asyncio.Task[None]] = set()
        next_at = time.monotonic()
        end_at = next_at + WARM_UP_S + setup.seconds
        for count in range(1 << 30):
            if time.monotonic() >= end_at:
                break
            room, signer = rooms[count % len(rooms)], bidders[count % len(bidders)]
            is_counted = begin.done()
            bid = _bid(setup, room, signer, lots[count % LOTS], count // LOTS + 1, result if is_counted else None)
            task = asyncio.create_task(bid)
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            next_at += 1 / setup.rate
            await asyncio.sleep(max(0.0, next_at - time.monotonic()))
        cpu_us = times.cpu_us(rooms[0])
        await asyncio.gather(*tasks)
        ready.put(number)
        await times.end()
    return result._replace(cpu_us=cpu_us / setup.peers)


async def _bid(setup: Setup, room: auction.Room, signer: Signer, lot: str, amount: int, result: Result | None) -> None:
    started_at = time.perf_counter()
    try:
        number = await _submit(room, signer, Action.BID, lot, amount=Decimal(amount))
        await room.receipt(number, timeout_s=TIMEOUT_S)
        if result is not None:
            result.took_ms.append((time.perf_counter() - started_at) * 1e3)
    except BroadloomError as problem:
        if result is not None:
            result.failed.append(str(problem))
    if setup.redial:
        requests = room.channel._node.peer.requests
        while requests._close_least_recently_used(is_initiator=True):
            pass


async def _submit(room: auction.Room, signer: Signer, action: Action, lot: str, **fields: Any) -> int:
    """As `Room` does it for its own ticket."""
    at_ms = int(time.time() * 1000)
    statement = Statement(action=action, id=secrets.token_hex(16), at_ms=at_ms, lot=lot, **fields)
    placed = await room._submit_entry(signed(statement, signer), TIMEOUT_S)
    outcome = room.ledger.by_number[placed.index]
    if outcome.error is not None:
        raise outcome.error
    return placed.index


def _process(setup: Setup, number: int, begin: Event, end: Event, ready: Any, results: Any) -> None:
    times = Times(begin, end)
    if number < len(NOTARIES):
        result = run(_notary(setup, number, times))
    else:
        result = run(_bidding(setup, number, times, ready))
    results.put((number, result))


def main(
    bidders: Annotated[int, typer.Option(min=1)] = 1000,
    rate: Annotated[float, typer.Option(help="Bids per second, of all bidders together.")] = 200.0,
    processes: Annotated[int, typer.Option(help="Bidding processes.", min=1)] = 2,
    peers: Annotated[int, typer.Option(help="Peers of each bidding process.", min=1)] = 2,
    seconds: Annotated[float, typer.Option()] = 10.0,
    redial: Annotated[bool, typer.Option(help="Ask for each receipt over a new connection.")] = False,
) -> None:
    """Print p50, p99 and the maximum of the time to a receipt, and the CPU time for each bid."""
    context = multiprocessing.get_context("spawn")
    begin, end, ready, results = context.Event(), context.Event(), context.SimpleQueue(), context.SimpleQueue()
    with tempfile.TemporaryDirectory() as directory:
        setup = Setup(
            f"auction/{uuid4().hex}", secrets.token_bytes(32), directory, peers, bidders // processes,
            rate / processes, seconds, redial,
        )  # fmt: skip
        numbers = range(len(NOTARIES) + processes)
        started = [context.Process(target=_process, args=(setup, each, begin, end, ready, results)) for each in numbers]
        for each in started:
            each.start()
        for event in (begin, end):
            for _ in range(processes):
                ready.get()
            event.set()
        found: dict[int, Result] = dict(results.get() for _ in numbers)
        for each in started:
            each.join()
    took_ms = sorted(took for result in found.values() for took in result.took_ms)
    failed = [text for result in found.values() for text in result.failed]
    p50, p99 = (round(took_ms[int(len(took_ms) * part)], 1) for part in (0.5, 0.99))
    cpu_us = {number: round(result.cpu_us) for number, result in found.items()}
    print(
        json.dumps(
            {
                "bidders": setup.bidders * processes, "peers": peers * processes, "receipts": len(took_ms),
                "failed": len(failed), "receipts_per_s": round(len(took_ms) / seconds), "p50_ms": p50, "p99_ms": p99,
                "max_ms": round(took_ms[-1], 1), "cpu_us_per_bid_of_notaries": [cpu_us[each] for each in range(3)],
                "cpu_us_per_bid_of_a_peer": round(sum(cpu_us[each] for each in numbers[3:]) / processes),
                "load": round(os.getloadavg()[0], 1),
            }
        )
    )  # fmt: skip
    for text in failed[:3]:
        print(text)


if __name__ == "__main__":
    typer.run(main)
