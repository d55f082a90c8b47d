"""Who lives in a lab: peers by number and by id, the processes they are in, their links; and the log of all changes."""

import time
from dataclasses import dataclass, field, replace

from weft.errors import WeftError
from weft.lab.shape import View
from weft.lab.staff import Hand
from weft.lab.story import Came, ChangeLog, LinkDown, LinkUp, PeerView, Told, Went
from weft.lab.talk import name_of


class NoSuchPeer(WeftError):
    """It is not there, or not any more."""


@dataclass(slots=True, eq=False)
class Known:
    """One peer, as far as the coordinator knows it."""

    number: int
    hand: Hand
    talks: bool
    id: int = 0
    """0 before it was connected."""
    port: int = 0
    is_going: bool = False
    """Told to leave."""

    @property
    def name(self) -> str:
        """What its neighbours in a conversation call it."""
        return name_of(self.number)


@dataclass(slots=True)
class _Link:
    ends: set[int] = field(default_factory=set)
    """Who of the two says that there is one."""


class Roster:
    def __init__(self) -> None:
        self.log = ChangeLog()
        self.known: dict[int, Known] = {}
        """By number: those that live, or are about to."""
        self.views: dict[int, View] = {}
        """By id: those that are connected."""
        self.by_id: dict[int, Known] = {}
        self.gone: dict[int, str] = {}
        """Ids of those that were, and how they went."""
        self._links: dict[tuple[int, int], _Link] = {}

    # -- looking

    def peer(self, peer: int) -> Known:
        known = self.by_id.get(peer)
        if known is None:
            how = self.gone.get(peer)
            text = f"peer {peer:016x} was {how}" if how == "killed" else f"peer {peer:016x} {how}" if how else ""
            raise NoSuchPeer(text or f"there is no peer {peer:016x} in this lab")
        return known

    @property
    def connected(self) -> list[Known]:
        return [known for known in self.known.values() if known.id and not known.is_going]

    @property
    def awake(self) -> list[Known]:
        """Those that can do something: not frozen, not about to leave."""
        return [known for known in self.connected if not known.hand.is_frozen]

    @property
    def members(self) -> dict[int, View]:
        """Views of those that live, are awake and were not told to leave."""
        return {known.id: self.views[known.id] for known in self.awake}

    @property
    def absent(self) -> list[int]:
        """Ids of those that no link should lead to any more."""
        frozen = [known.id for known in self.known.values() if known.id and (known.hand.is_frozen or known.is_going)]
        return [*self.gone, *frozen]

    def now(self) -> dict[int, PeerView]:
        told = {}
        for peer, view in self.views.items():
            known = self.by_id[peer]
            told[peer] = PeerView(
                peer,
                str(known.number),
                view.state,
                view.neighbours,
                view.holes,
                view.diameter,
                view.is_small,
                known.hand.is_frozen,
            )
        return told

    # -- what happens

    def say(self, text: str) -> None:
        """A sentence for people."""
        self.log.add(Told(time.time(), text))

    def came(self, known: Known, peer: int, port: int) -> None:
        known.id, known.port = peer, port
        self.by_id[peer] = known
        self.log.add(Came(time.time(), peer, str(known.number)))

    def seen(self, view: View) -> None:
        """A peer told of itself."""
        before = self.views.get(view.peer)
        self.views[view.peer] = view
        old, new = set(before.neighbours if before else ()), set(view.neighbours)
        for other in new - old:
            self._link(view.peer, other)
        for other in old - new:
            self._unlink(view.peer, other)

    def reckoned(self, diameters: list[list[int]]) -> None:
        """What peers believe of the fabric's diameter changes without any change of their links."""
        for peer, diameter in diameters:
            view = self.views.get(peer)
            if view is not None and view.diameter != diameter:
                self.views[peer] = replace(view, diameter=diameter)

    def went(self, known: Known, how: str) -> None:
        self.known.pop(known.number, None)
        known.hand.peers.discard(known.number)
        if not known.id:
            return
        view = self.views.pop(known.id, None)
        self.by_id.pop(known.id, None)
        self.gone[known.id] = how
        for other in view.neighbours if view is not None else ():
            self._unlink(known.id, other)
            self._unlink(other, known.id)
        self.log.add(Went(time.time(), known.id, how))

    def _link(self, peer: int, other: int) -> None:
        if other in self.gone:
            return  # said by one that has not noticed yet
        pair = (peer, other) if peer < other else (other, peer)
        link = self._links.get(pair)
        if link is None:
            link = self._links[pair] = _Link()
            self.log.add(LinkUp(time.time(), *pair))
        link.ends.add(peer)

    def _unlink(self, peer: int, other: int) -> None:
        pair = (peer, other) if peer < other else (other, peer)
        link = self._links.get(pair)
        if link is None:
            return
        link.ends.discard(peer)
        if not link.ends:
            del self._links[pair]
            self.log.add(LinkDown(time.time(), *pair))
