"""A lab: one object that starts peers in processes of their own, does things to them, and watches.

Up to `processes_max` peers have a process each; of more, all but the first few share processes. What is done to them is
real:

- **kill**: SIGKILL, if the process is the peer's alone or all its peers are to die. One that shares its process with
  others that shall live has its sockets dropped without a word, which is what the kernel does for a dead process.
- **freeze**: SIGSTOP, always of a process, with all the peers in it.
- **split**: see `border.py`.

It lives in the event loop of its caller. Everything that takes time has a deadline; nothing is left behind when it
ends, however that happens (`nursery.py`).
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from weft.lab import shape
from weft.lab.figures import Figures, Sample
from weft.lab.keeper import LOOK_S, Keeper
from weft.lab.plan import SILENCE, LabPlan, Rates
from weft.lab.promises import Promise, Promises, told
from weft.lab.repairs import Repair
from weft.lab.roster import Known
from weft.lab.staff import LabFailed
from weft.lab.story import Change, PeerView
from weft.lab.words import peers_were, those_were
from weft.trial.processes import why_not_here

LEAVE_S = 20.0
WHOLE_S = 120.0


class Lab:
    """Made by `Lab.start`. A story (`story.py`): `now` and `changes` are what pages are drawn from."""

    def __init__(self, plan: LabPlan) -> None:
        self.plan = plan
        self.channel = f"lab/{secrets.token_hex(16)}"
        """Whoever knows it can join, with `weft.connect(lab.channel, portals=lab.portals())`; nobody can guess it."""
        self.tape: Path | None = plan.tape
        self.kills = 0
        self._keeper = Keeper(plan, self.channel)
        self._roster, self._staff = self._keeper.roster, self._keeper.staff
        self.repairs = self._keeper.repairs
        self.totals: Figures = self._keeper.figures
        """Counts since the beginning."""
        self.verdict: Promises = self._keeper.promises
        """All that was found wrong, in words."""
        self._grown = asyncio.Event()
        self._problem: Exception | None = None

    @classmethod
    @asynccontextmanager
    async def start(cls, plan: LabPlan) -> AsyncIterator["Lab"]:
        """The first process is there when this is entered; the peers come one after the other, which `grown` waits for.
        At the end everybody is gone, and the tapes are whole."""
        if problem := why_not_here():
            raise LabFailed(problem.replace("trials need", "a lab needs"))
        lab = cls(plan)
        try:
            await lab._keeper.start()
            lab._keeper.spawn(lab._grow())
            yield lab
        finally:
            await lab._keeper.close()

    async def _grow(self) -> None:
        try:
            await self.add(self.plan.peers)
        except LabFailed as problem:
            self._roster.say(str(problem))
            self._problem = problem
        self.traffic(Rates.usual(self.plan.peers) if self.plan.rates is None else self.plan.rates)
        self._grown.set()

    async def grown(self, within_s: float = WHOLE_S) -> None:
        """Wait until all peers of the plan are there, in one regular fabric."""
        try:
            async with asyncio.timeout(within_s):
                await self._grown.wait()
        except TimeoutError:
            count = len(self._roster.connected)
            raise LabFailed(f"after {within_s:g} s only {count} of {self.plan.peers} peers are there") from None
        if self._problem is not None:
            raise self._problem
        await self.whole(within_s)

    # -- the story

    def now(self) -> dict[int, PeerView]:
        return self._roster.now()

    def changes(self, since: int) -> tuple[int, list[Change]]:
        return self._roster.log.since(since)

    def figures(self) -> list[Sample]:
        """One sample a second, the last hour."""
        return list(self.totals.samples)

    def promises(self) -> list[Promise]:
        return told(self.verdict, self.totals, self._roster, self.repairs, self.plan.degree, is_split=self.is_split)

    def portals(self) -> list[str]:
        """Addresses of some peers, for whoever wants to take part too."""
        return self._keeper.portals()

    def diameter(self) -> int:
        """The true one, in links; what each peer believes is in its view."""
        return shape.diameter(self._roster.members)

    def name_of(self, peer: int) -> str:
        """What the members of conversations call a peer."""
        return self._roster.peer(peer).name

    @property
    def lost_rows(self) -> int:
        """Rows that recorders lost."""
        return sum(self._keeper.lost_rows.values())

    @property
    def processes(self) -> int:
        return sum(not hand.ended.is_set() for hand in self._staff.hands)

    @property
    def is_split(self) -> bool:
        return bool(self._keeper.far)

    @property
    def rates(self) -> Rates:
        return self._keeper.rates

    # -- what can be done to it

    async def add(self, count: int) -> list[int]:
        """So many newcomers; their ids, when all are connected."""
        self.repairs.disturb(peers_were(count, "came"))
        return await self._keeper.joining.add(count)

    async def kill(self, peers: Sequence[int]) -> None:
        """Without warning, all at the same moment."""
        doomed = [self._roster.peer(peer) for peer in dict.fromkeys(peers)]
        if not doomed:
            return
        numbers = {known.number for known in doomed}
        hands = {known.hand.number: known.hand for known in doomed}
        whole = [hand for hand in hands.values() if hand.peers <= numbers]
        self.repairs.disturb(peers_were(len(doomed), "killed"))
        for hand in whole:
            self._staff.kill(hand)
        for hand in hands.values():
            if hand not in whole:
                hand.order(do="kill", peers=[known.id for known in doomed if known.hand is hand])
        self.kills += len(doomed)
        for known in doomed:
            self._keeper.went(known, "killed")
        self._roster.say(those_were(doomed, "killed"))

    async def kill_some(self, count: int) -> list[int]:
        """So many, at random: whole processes as long as they fit."""
        there = self._roster.connected
        if count >= len(there):
            raise LabFailed(f"there are {len(there)} peers: kill fewer, so that somebody is left to repair the fabric")
        chosen: list[Known] = []
        hands = list({known.hand.number: known.hand for known in there}.values())
        self._keeper.random.shuffle(hands)
        by_hand = [[known for known in there if known.hand is hand] for hand in hands]
        for group in by_hand:
            if len(group) <= count - len(chosen):
                chosen += group
        rest = [known for group in by_hand for known in group if known not in chosen]
        chosen += self._keeper.random.sample(rest, count - len(chosen))
        peers = [known.id for known in chosen]
        await self.kill(peers)
        return peers

    async def leave(self, peers: Sequence[int]) -> None:
        """In good order; returns when all have."""
        goers = [self._roster.peer(peer) for peer in dict.fromkeys(peers)]
        if frozen := [known for known in goers if known.hand.is_frozen]:
            raise LabFailed(f"peer {frozen[0].number} is frozen and cannot leave: thaw it first, or kill it")
        self.repairs.disturb(peers_were(len(goers), "left"))
        for known in goers:
            known.is_going = True
            self._keeper.left[known.id] = asyncio.Event()
            known.hand.order(do="leave", peers=[known.id])
        try:
            async with asyncio.timeout(LEAVE_S):
                for known in goers:
                    await self._keeper.left[known.id].wait()
        except TimeoutError:
            raise LabFailed(f"after {LEAVE_S:g} s not all of {len(goers)} peers have left") from None
        finally:
            for known in goers:
                del self._keeper.left[known.id]
        self._roster.say(those_were(goers, "left"))

    async def freeze(self, peer: int) -> list[int]:
        """Stop its process, and with it all peers in it: their ids."""
        hand = self._roster.peer(peer).hand
        there = [known for known in self._roster.connected if known.hand is hand]
        if not hand.is_frozen:
            self._staff.freeze(hand)
            self.repairs.disturb(peers_were(len(there), "frozen"))
            self._roster.say(those_were(there, "frozen"))
            self._keeper.share_traffic()
        return [known.id for known in there]

    async def thaw(self, peer: int) -> None:
        """Let it, and all that were stopped with it, go on."""
        hand = self._roster.peer(peer).hand
        if hand.is_frozen:
            there = [known for known in self._roster.connected if known.hand is hand]
            self._staff.thaw(hand)
            self.repairs.disturb(peers_were(len(there), "thawed"))
            self._roster.say(those_were(there, "thawed"))
            self._keeper.share_traffic()

    async def split(self) -> None:
        """Two halves, chosen at random, cannot reach each other any more. Newcomers are of the near one."""
        there = self._roster.connected
        if self.is_split:
            raise LabFailed("the fabric is split already: heal it first")
        if len(there) < 2:
            raise LabFailed("one peer alone cannot be split: add some")
        far = self._keeper.random.sample(there, len(there) // 2)
        self._keeper.far = {known.id: known.port for known in far}
        self.repairs.disturb("the fabric was split")
        self._staff.order_all(do="border", peers=list(self._keeper.far), ports=list(self._keeper.far.values()))
        self._roster.say(f"the fabric was split: {len(there) - len(far)} peers here, {len(far)} there")

    async def heal(self) -> None:
        """Both sides can reach each other again. That they find each other is their own business."""
        if not self.is_split:
            raise LabFailed("the fabric is not split")
        self._keeper.far = {}
        self.repairs.forget()  # so that the time is that of merging
        self.repairs.disturb("the split was healed")
        self._staff.order_all(do="border", peers=[], ports=[])
        self._roster.say("the split was healed: both sides can reach each other again")

    def traffic(self, rates: Rates) -> None:
        """So much is said from now on, by all peers together."""
        self._keeper.traffic(rates)

    async def withhold(self, peer: int, count: int = 1) -> None:
        """A planted fault: the next deliveries to this peer never happen. To see that the checks fire."""
        self._roster.peer(peer).hand.order(do="suppress", peer=peer, count=count)

    # -- waiting

    async def whole(self, within_s: float = WHOLE_S) -> Repair | None:
        """Wait until the fabric is one regular graph of all that are awake; how long that took, if it was not."""
        count = self.repairs.count
        try:
            async with asyncio.timeout(within_s):
                while self.repairs.is_disturbed:  # noqa: ASYNC110  (looked at as often as it is found out)
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise LabFailed(f"after {within_s:g} s the fabric is not whole: {self._keeper.unrest()}") from None
        return self.repairs.done[-1] if self.repairs.count > count else None

    async def delivered(self, within_s: float = WHOLE_S) -> None:
        """Stop the traffic, and wait until everyone has everything that was said."""
        self.traffic(SILENCE)
        deadline = time.monotonic() + within_s
        while True:
            heads = await self._staff.ask(self._staff.living, do="heads", gone=self.verdict.gone)
            roll = self.verdict.exact_roll(heads)
            answers = await self._staff.ask(self._staff.living, do="check", roll=roll)
            self.verdict.checked(answers, is_calm=False)
            if not self.verdict.lacking and len(answers) == len(self._staff.living):
                return
            if time.monotonic() > deadline:
                self.verdict.lost = self.verdict.lacking
                raise LabFailed(f"after {within_s:g} s: {'; '.join(self.verdict.lacking_told[:3])}")
            await asyncio.sleep(LOOK_S)
