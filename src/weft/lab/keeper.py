"""What goes on in a lab by itself: hearing its processes, sharing the traffic out, looking whether all is well.

`lab.py` is what people do to it.
"""

import asyncio
import time
from dataclasses import asdict
from random import Random
from typing import Any

from weft.lab import shape
from weft.lab.figures import Figures
from weft.lab.joining import Joining
from weft.lab.plan import SILENCE, LabPlan, Rates
from weft.lab.promises import Promises
from weft.lab.repairs import Repairs
from weft.lab.roster import Known, Roster
from weft.lab.staff import Hand, Staff
from weft.lab.story import Hop, Missed, Said
from weft.lab.words import peers_were, seconds, those_were
from weft.lab.worker import Terms

CONNECT_S = 60.0
"""For one newcomer."""
LOOK_S = 0.1
"""How often it is looked whether the fabric is whole again."""
LOOKS_AT_REST = 10
"""While nothing has been done to it, only one look of so many is a thorough one."""
FOLLOWED_PER_S = 3.0
FOLLOWED_HOPS_PER_S = 600.0
"""So many messages a second are followed on their way, and so many hops of them told at most."""
FOLLOWED_OVER_S = 5
"""How much is said is averaged over so long."""
COMPARE_S = 1.0
COMPARE_PEERS = 100
"""What everyone has is compared this often, with more peers more rarely: each has to be compared with each."""
PORTALS = 4
"""Peers whose addresses a newcomer is given."""


class Keeper:
    def __init__(self, plan: LabPlan, channel: str) -> None:
        self.plan = plan
        self.random = Random()
        self.figures = Figures()
        self.promises = Promises()
        self.repairs = Repairs()
        self.roster = Roster()
        tape = str(plan.tape.absolute()) if plan.tape is not None else ""
        self.staff = Staff(Terms(channel, plan.degree, tape, plan.file_s, CONNECT_S), self._told, self._died)
        self.joining = Joining(plan, self.staff, self.roster, self.portals, self._brief)
        self.rates = SILENCE
        self.far: dict[int, int] = {}
        """In a split: ids and ports of the far side."""
        self.lost_rows: dict[int, int] = {}
        """Of each process: what its recorder lost."""
        self.left: dict[int, asyncio.Event] = {}
        """Set when a peer that was told to leave has."""
        self._is_dirty = True
        """Who is there has changed: the traffic has to be shared anew."""
        self._one_of = 1
        """One message of so many is followed on its way."""
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self.staff.ready()
        for work in (self._watch(), self._every_second(), self._compare()):
            self.spawn(work)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.staff.close()

    def spawn(self, work: Any) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    def portals(self) -> list[str]:
        """Addresses of some that are awake, and of the near side."""
        awake = [known for known in self.roster.awake if known.id not in self.far]
        some = self.random.sample(awake, min(PORTALS, len(awake)))
        return [f"127.0.0.1:{known.port}" for known in some] or ["127.0.0.1"]

    def _brief(self, hand: Hand) -> None:
        hand.order(do="follow", one_of=self._one_of)
        hand.order(do="border", peers=list(self.far), ports=list(self.far.values()))

    def traffic(self, rates: Rates) -> None:
        self.rates = rates
        self.share_traffic()

    def went(self, known: Known, how: str) -> None:
        """It is no more. How one that left had fared is told by itself."""
        if known.id and how != "left":
            self.promises.went(known.id, in_good_order=False)
        self.roster.went(known, how)
        self._is_dirty = True
        if known.id in self.left:
            self.left[known.id].set()
        if not known.hand.peers:
            self.figures.gone(known.hand.number)

    # -- told by processes

    def _told(self, hand: Hand, told: dict[str, Any]) -> None:
        match told["tell"]:
            case "counts":
                self._counted(hand, told)
            case "views":
                for view in told["views"]:
                    self._seen(view)
            case "connected":
                self.joining.connected(told["number"], told["view"][1], told["port"])
                self._seen(told["view"])
                self._is_dirty = True
            case "failed":
                self.joining.failed(told["number"], told["text"])
            case "left":
                known = self.roster.by_id.get(told["peer"])
                if known is not None:
                    self.promises.went(known.id, in_good_order=True, sent=told["sent"], sent_ns=told["sent_ns"])
                    self.went(known, "left")
            case "broken":
                self.promises.broken.append(f"promise {told['promise']}: {told['text']}")
                self.roster.say(f"a promise was broken: {told['text']}")
            case "fault":
                self.promises.fault(f"process {hand.number}: {told['text']}")

    def _counted(self, hand: Hand, told: dict[str, Any]) -> None:
        self.figures.counted(hand.number, told)
        self.promises.counted(hand.number, told)
        self.lost_rows[hand.number] = told["lost_rows"]
        log = self.roster.log
        for said in told.get("said", ()):
            log.add(Said(*said))
        for hop in told.get("hops_seen", ()):
            log.add(Hop(*hop))
        at_s = time.time()
        for missed in told["missed_ranges"]:
            log.add(Missed(at_s, *missed))
        self.roster.reckoned(told["diameters"])

    def _seen(self, told: list[Any]) -> None:
        number, peer, state, changed_ns, neighbours, holes, diameter, is_small = told
        if peer in self.roster.by_id:
            view = shape.View(number, peer, state, changed_ns, tuple(neighbours), holes, diameter, is_small)
            self.roster.seen(view)

    def _died(self, hand: Hand) -> None:
        there = [known for known in self.roster.known.values() if known.hand is hand]
        self.promises.fault(f"process {hand.number} ended, and nobody had told it to")
        if there:
            self.repairs.disturb(peers_were(len(there), "died"))
            self.roster.say(those_were(there, "died"))
        for known in there:
            self.joining.failed(known.number, "its process ended")
            self.went(known, "died")

    # -- what goes on by itself

    async def _every_second(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            sample = self.figures.tick(len(self.roster.connected))
            if self._is_dirty:
                self.share_traffic()
            lately = list(self.figures.samples)[-FOLLOWED_OVER_S:]
            sent_per_s = sum(each.sent_per_s for each in lately) / len(lately)
            per_s = min(FOLLOWED_PER_S, FOLLOWED_HOPS_PER_S / max(1, sample.peers))
            self._follow(sent_per_s / per_s)

    def _follow(self, wanted: float) -> None:
        """Told only if it has changed by much: in that moment not all follow the same, and those that are frozen read
        nothing, so it would pile up for them."""
        if not self._one_of / 2 <= max(1.0, wanted) <= self._one_of * 2:
            self._one_of = max(1, round(wanted))
            self.staff.order_all(do="follow", one_of=self._one_of)

    def share_traffic(self) -> None:
        self._is_dirty = False
        awake = self.roster.awake
        talkers = sum(known.talks for known in awake)
        for hand in self.staff.hands:
            here = [known for known in awake if known.hand is hand]
            share = len(here) / len(awake) if awake else 0.0
            chat = sum(known.talks for known in here) / talkers if talkers else 0.0
            rates = asdict(self.rates.shared(share)) | {"chat_per_s": self.rates.chat_per_s * chat}
            hand.order(do="rates", rates=rates)

    async def _watch(self) -> None:
        """Whether the fabric is whole again."""
        looks = 0
        while True:
            await asyncio.sleep(LOOK_S)
            members = self.roster.members
            if over := shape.overfull(members, self.plan.degree):
                self.promises.overfull += 1
                self.promises.broken.append(f"promise 4: peer {over[0].number} has {len(over[0].neighbours)} links")
            looks += 1
            if not members or not (self.repairs.is_disturbed or looks % LOOKS_AT_REST == 0):
                continue
            if self.unrest() is not None:
                self.repairs.is_not_whole()
                continue
            repair = self.repairs.is_whole(max(view.changed_ns for view in members.values()))
            if repair is not None:
                after = f"{seconds(repair.took_s)} after: {repair.what}"
                self.roster.say(f"one fabric, everyone with its links, {after}")

    def unrest(self) -> str | None:
        if self.far:
            return "the fabric is split on purpose: heal it first"
        if newcomers := self.joining.under_way:
            return f"peer {newcomers[0]} is not connected yet"
        return shape.unrest(self.roster.members, self.plan.degree, self.roster.absent)

    async def _compare(self) -> None:
        """Whether everyone has what was said."""
        while True:
            await asyncio.sleep(COMPARE_S * max(1.0, len(self.roster.connected) / COMPARE_PEERS))
            heads = await self.staff.ask(self.staff.living, do="heads", gone=self.promises.gone)
            roll = self.promises.roll(heads)
            if roll:
                answers = await self.staff.ask(self.staff.living, do="check", roll=roll)
                frozen = any(hand.is_frozen and not hand.ended.is_set() for hand in self.staff.hands)
                self.promises.checked(answers, is_calm=not (self.repairs.is_disturbed or self.far or frozen))
