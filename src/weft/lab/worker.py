"""Inside a process of a lab: peers that do as the coordinator says, and tell what happens to them.

Links are told as they change; everything else is counted, and told a few times a second. Ends when told to, and when
the coordinator is gone (its end of the socket closes).
"""

import asyncio
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import weft
from weft.lab import chatting, talk
from weft.lab.border import Border, Crossing
from weft.lab.plan import Rates
from weft.lab.resident import Resident, Tally
from weft.lab.witness import Followed, LabWitness, Scribe
from weft.trial import testimony, vitals
from weft.trial.ledger import Head
from weft.trial.orders import from_line
from weft.trial.reporting import Reporting

if TYPE_CHECKING:
    from weft.fabric.events import Missed
    from weft.record import Tape

TELL_S = 0.2
"""How often counts are told."""
VIEW_PAUSE_S = 0.1
"""Changes of links within this time are told together."""
UNREAD_BYTES_MAX = 1 << 20
"""If the coordinator has not read so much, the ways of messages are not told until it has; counts go on."""
END_S = 2.0
LACKING_TOLD_MAX = 5
MISSED_TOLD_MAX = 50
"""Ranges of missed messages told one by one between two tellings; all are counted."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What all peers of a lab have in common."""

    channel: str
    degree: int
    tape: str
    """A folder; empty: nothing is recorded."""
    file_s: float
    connect_s: float


class Worker(Reporting):
    def __init__(self, end: socket.socket) -> None:
        super().__init__(end)
        self._random = Random()
        self._residents: dict[int, Resident] = {}
        """By id."""
        self._changed: dict[Resident, None] = {}
        self._tally = Tally()
        self._counted = dict.fromkeys(("sent", "received", "duplicates"), 0)
        self._marked: dict[int, int] = {}
        self._gone = dict.fromkeys(("sent", "received", "duplicates"), 0)
        """Of peers that are no more."""
        self._missed: list[list[int]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._border = Border()
        self._followed = Followed()
        self._scribe = Scribe(chatting.titles())
        self._talking: list[asyncio.Task[None]] = []
        self._prices: dict[str, float] = {}
        self._tape: Tape | None = None

    async def main(self) -> None:
        await self.begin(warned=lambda _text: None)
        self._terms = Terms(**from_line(await self._ordered.readline()))
        if self._terms.tape:
            from weft.record import Tape, TapeSettings

            self._tape = Tape(Path(self._terms.tape), settings=TapeSettings(file_s=self._terms.file_s))
        self._spawn(self._tell_counts())
        try:
            async for order in self.orders():
                self._obey(order)
        finally:
            await self._stop()

    async def _stop(self) -> None:
        for task in [*self._tasks, *self._talking]:
            task.cancel()
        for resident in self._residents.values():
            resident.channel.vanish()
        if self._tape is not None:
            self._tape.close()
        self.tell(tell="counts", **self._counts())
        with suppress(OSError, TimeoutError):  # nobody may be there to read it
            async with asyncio.timeout(END_S):
                await self._writer.drain()
        self._writer.close()

    # -- telling

    def _has_missed(self, resident: Resident, missed: "Missed") -> None:
        if len(self._missed) < MISSED_TOLD_MAX:
            self._missed.append([resident.id, *missed])

    def _link_changed(self, resident: Resident) -> None:
        if not self._changed:
            self._loop.call_later(VIEW_PAUSE_S, self._tell_views)
        self._changed[resident] = None

    def _tell_views(self) -> None:
        changed, self._changed = self._changed, {}
        views = [resident.view() for resident in changed if resident.id in self._residents]
        if views:
            self.tell(tell="views", views=views)

    async def _tell_counts(self) -> None:
        while True:
            await asyncio.sleep(TELL_S)
            self.tell(tell="counts", **self._counts())

    def _counts(self) -> dict[str, Any]:
        tally, self._tally = self._tally, Tally()
        residents = list(self._residents.values())
        told = tally.as_dict()
        for name in self._counted:
            so_far = self._gone[name] + sum(int(getattr(each.witness, f"{name}_count")) for each in residents)
            told[name] = so_far - self._counted[name]
            self._counted[name] = so_far
        for each in residents:
            if each.chatting is not None:
                each.chatting.read()
        marks = [[each.id, each.sent, each.sent_ns] for each in residents if self._marked.get(each.id) != each.sent]
        self._marked.update({peer: sent for peer, sent, _ in marks})
        missed, self._missed = self._missed, []
        told |= {"marks": marks, "missed_ranges": missed, "broken_count": self._broken_count}
        told["slow"] = sorted({peer for each in residents for peer in each.behind()})
        told["diameters"] = [[each.id, each.node.peer.diameter.estimate] for each in residents]
        told["lost_rows"] = self._tape.lost_rows if self._tape is not None else 0
        if self._writer.transport.get_write_buffer_size() < UNREAD_BYTES_MAX:
            told |= {"said": list(self._followed.said), "hops_seen": list(self._followed.hops)}
            self._followed.said.clear()
            self._followed.hops.clear()
        told["dropped"] = self._followed.dropped
        return told

    # -- orders

    def _obey(self, order: dict[str, Any]) -> None:
        match order["do"]:
            case "start":
                self._spawn(self._start(order["number"], order["portals"], talks=order["talks"]))
            case "kill":
                for resident in self._taken(order["peers"]):
                    self._spawn(resident.vanish())
            case "leave":
                for resident in self._taken(order["peers"]):
                    self._spawn(self._leave(resident))
            case "rates":
                self._set_rates(Rates(**order["rates"]))
            case "follow":
                self._followed.one_of = order["one_of"]
            case "border":
                self._border.draw(order["peers"], order["ports"])
                for resident in self._residents.values():
                    resident.node.break_off_across()
            case "suppress":
                self._residents[order["peer"]].suppressed += order["count"]
            case question:
                self.tell(answer=order["ask"], **self._answer(question, order))

    def _answer(self, question: str, order: dict[str, Any]) -> dict[str, Any]:
        residents: list[Any] = list(self._residents.values())
        match question:
            case "heads":
                return testimony.heads(residents, order["gone"])
            case "check":
                return self._check(order["roll"])
            case "vitals":
                return vitals.usage() | {"views": [each.view() for each in residents]}
        raise ValueError(f"no such order: {question!r}")

    def _check(self, told: list[list[int]]) -> dict[str, Any]:
        """What our peers lack of what is owed."""
        roll = {author: Head(last, last_ns) for author, last, last_ns in told}
        lacking = [
            f"peer {each.number} {text}" for each in self._residents.values() for text in each.ledger.lacking(roll)
        ]
        pairs = len(roll) * len(self._residents)
        return {"lacking": lacking[:LACKING_TOLD_MAX], "lacking_count": len(lacking), "pairs": pairs}

    def _taken(self, peers: list[int]) -> list[Resident]:
        """Off our list, with what they have counted kept."""
        taken = [self._residents.pop(peer) for peer in peers if peer in self._residents]
        for each in taken:
            for name in self._gone:
                self._gone[name] += int(getattr(each.witness, f"{name}_count"))
        return taken

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(self, number: int, portals: list[str], *, talks: bool) -> None:
        witness = LabWitness(self._tape, talk.name_of(number), self._followed, self._scribe)
        began_ns = time.monotonic_ns()
        try:
            channel = await Crossing(
                self._terms.channel,
                self._border,
                portals=portals,
                timeout_s=self._terms.connect_s,
                tape=witness,
                settings=weft.Settings(degree=self._terms.degree),
            )
        except weft.WeftError as problem:
            self.tell(tell="failed", number=number, text=str(problem))
            return

        def broken(promise: int, text: str) -> None:
            self.broken(promise, f"peer {number} ({channel.peer:016x}) {text}")

        resident = Resident(
            number,
            channel,
            witness,
            tally=lambda: self._tally,
            place=self._scribe.place,
            broken=broken,
            missed=self._has_missed,
            changed=self._link_changed,
        )
        self._residents[resident.id] = resident
        if talks:
            await resident.chat(self._random)
        else:
            resident.listen()
        took_s = (resident.connected_ns - began_ns) / 1e9
        address = resident.node.peer.me.address
        # With its links: a peer of which they are not known must not be overlooked when the fabric is looked at.
        self.tell(tell="connected", number=number, took_s=took_s, port=address.port, view=resident.view())

    async def _leave(self, resident: Resident) -> None:
        began_ns = time.monotonic_ns()
        await resident.leave()
        took_s = (time.monotonic_ns() - began_ns) / 1e9
        self.tell(tell="left", peer=resident.id, sent=resident.sent, sent_ns=resident.sent_ns, took_s=took_s)

    # -- traffic

    def _set_rates(self, rates: Rates) -> None:
        for task in self._talking:
            task.cancel()
        kinds = (
            (rates.ticks_per_s, lambda _resident: talk.tick(self._random, self._prices)),
            (rates.idents_per_s, lambda resident: talk.ident(resident.name)),
            (rates.adverts_per_s, lambda _resident: talk.advert(self._random)),
        )
        self._talking = [self._loop.create_task(self._talk(per_s, make)) for per_s, make in kinds if per_s]
        if rates.chat_per_s:
            self._talking.append(self._loop.create_task(self._chat(rates.chat_per_s)))

    async def _talk(self, per_s: float, make: Any) -> None:
        """At random moments, each time a random peer; an order to stop never breaks off a message half sent."""
        while True:
            await asyncio.sleep(self._random.expovariate(per_s))
            if self._residents:
                resident = self._random.choice(list(self._residents.values()))
                await asyncio.shield(self._loop.create_task(resident.say(make(resident))))

    async def _chat(self, per_s: float) -> None:
        while True:
            await asyncio.sleep(self._random.expovariate(per_s))
            talkers = [each.chatting for each in self._residents.values() if each.chatting is not None]
            if talkers:
                with suppress(weft.WeftError):  # it is leaving just now
                    await asyncio.shield(self._loop.create_task(self._random.choice(talkers).say()))


def main(end: socket.socket) -> None:
    """What a forked process does with its life."""
    from weft.net.loop import run

    run(Worker(end).main())
