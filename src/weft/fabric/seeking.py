"""Finding the channel: searching portals by depth, meeting fellow seekers, and founding it if nobody is there.

Seekers who meet share how deep they have looked and whom they have met, and never form a fabric together before
the search is exhausted. Then the one with the lowest id that can be found at a portal founds the channel, the others
wait for its word. So peers that start at the same moment end in one fabric.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.fabric.calls import Call, Incoming, Outgoing
from weft.fabric.events import Barred
from weft.fabric.port_order import PortOrder, search_order
from weft.fabric.state import State
from weft.wire import Address, Contact, PeerId
from weft.wire.calls import Connected, Refusal, Seek, SeekAnswer
from weft.wire.codec import Message

if TYPE_CHECKING:
    from weft.fabric.peer import Peer
    from weft.fabric.world import Timer

FELLOWS_MAX = 32
"""Fellow seekers remembered."""
FELLOWS_TOLD = 8
"""Fellow seekers told to another: those with the lowest ids, one of whom would found the channel."""
TRIES_AT_ONCE = 3
PORTALS_KNOCKED = 3
DOORS_KNOCKED = 4
"""Portals, and ports of each, that a member looks at in one go."""

BARRED_BY = {
    Refusal.WRONG_KEY: "is on this channel, but has another key",
    Refusal.EXPIRED: "says that a ticket has expired; ask the channel's owner for a new one, and look at the clocks",
    Refusal.REVOKED: "says that this ticket was revoked by the channel's owner",
    Refusal.WRONG_SIGNING: "is on this channel, but one side signs its messages and the other does not",
    Refusal.WRONG_MODE: "speaks plain TCP where this peer speaks TLS, or the other way round",
    Refusal.WRONG_VERSION: "speaks another version of the protocol",
    Refusal.WRONG_CHANNEL: "is on another channel; check type and instance",
    Refusal.NOT_WEFT: "is no Weft peer",
}
BARRED_ANYWHERE = (Refusal.WRONG_KEY, Refusal.EXPIRED, Refusal.REVOKED, Refusal.WRONG_SIGNING)


class Seeking:
    """`portals` are host names (searched along the port order) or whole addresses (port given)."""

    def __init__(self, peer: "Peer", portals: tuple[Address, ...]) -> None:
        self._peer = peer
        self._order = PortOrder(peer.channel_id)
        self._portals = portals
        self._indices: list[int] = []
        self._step = 0
        self._unanswered = 0
        """Calls of this search that are under way."""
        self._done: dict[int, None] = {}
        """Indices of the port order at which all portals were tried."""
        self._searched = False
        """All depths have been tried; what is unanswered may still bring somebody."""
        self._round = 0
        self.depth = 0
        """All portals have been tried to this depth, by this peer or one it met."""
        self._on_portal = False
        self._fellows: dict[PeerId, Contact] = {}
        self._at_portal: dict[PeerId, None] = {}
        """Fellows that answered at a portal, so that they could found the channel."""
        self._found: dict[PeerId, Contact] = {}
        """Connected peers that could be asked to weave us in."""
        self._joining = False
        self._invited = False
        """A connected peer has started to weave us in."""
        self._asked_cache = False
        self._barred: Barred | None = None
        self._door = 0
        self._timer: Timer | None = None

    # -- the search

    def start(self) -> None:
        """Begin, or begin again."""
        self._round += 1
        self._asked_cache = False
        self._barred = None
        self._unanswered = 0
        self._searched = False
        self._done.clear()
        self.depth = 0
        self._indices = search_order(self._peer.settings.search_depth, self._peer.world.random)
        self._step = 0
        named = [portal for portal in self._portals if portal.port]
        self._try_all(named)

    @property
    def active(self) -> bool:
        return self._peer.state is State.SEEKING and not len(self._peer.links)

    def _try_all(self, addresses: list[Address], index: int | None = None) -> None:
        """All portals at one depth at once; then the next depth. A portal that does not answer, because its host is
        dead or its peer is stopped, delays the search but does not hold it up."""
        round_number, step = self._round, self._step
        waiting_for = len(addresses)
        self._unanswered += waiting_for

        def go_on() -> None:
            if (round_number, step) == (self._round, self._step) and not self._searched:
                self._next_depth()

        def tried() -> None:
            nonlocal waiting_for
            waiting_for -= 1
            if round_number != self._round:
                return
            self._unanswered -= 1
            if waiting_for == 0 and index is not None:
                self._done[index] = None
            if not self._searched:
                if waiting_for == 0:
                    go_on()
            elif self._unanswered == 0:
                self._exhausted()

        if not addresses:
            go_on()
            return
        self._peer.world.after(self._peer.settings.seek_patience_s, go_on)
        for address in addresses:
            self._try(address, tried)

    def _try(self, address: Address | Contact, tried: Callable[[], None]) -> None:
        def on_answer(call: Call, answer: Message) -> None:
            if isinstance(answer, SeekAnswer):
                self._met(call.caller, answer, at_portal=isinstance(address, Address))
            tried()

        def on_failure(reason: Refusal | None) -> None:
            if reason is Refusal.MYSELF:
                self._on_portal = True
            if isinstance(address, Address) and reason in self._barring(address):
                self._barred = Barred(reason, f"{address}: {BARRED_BY[reason]}")
            if isinstance(address, Contact):
                self._fellows.pop(address.peer, None)
            tried()

        Outgoing(self._peer, address, self._question(), on_answer, on_failure)

    def _question(self) -> Seek:
        return Seek(self._peer.state is State.CONNECTED, self.depth, self._told_fellows())

    def _told_fellows(self) -> tuple[Contact, ...]:
        return tuple(self._fellows[peer] for peer in sorted(self._fellows)[:FELLOWS_TOLD])

    def _next_depth(self) -> None:
        if not self.active or self._joining or self._invited:
            return
        self.depth = max(self.depth, self._done_in_order())
        while self._step < len(self._indices) and self._may_skip(self._indices[self._step]):
            self._step += 1
        hosts = [portal.host for portal in self._portals if not portal.port]
        if self._step >= len(self._indices) or not hosts:
            self._searched = True
            if self._unanswered == 0:
                self._exhausted()
            return
        index = self._indices[self._step]
        self._step += 1
        self._try_all([Address(host, self._order[index]) for host in hosts], index)

    def _may_skip(self, index: int) -> bool:
        """A fellow has looked there. But at our own port only we can find out whether we are at a portal ourselves."""
        return index < self.depth and (self._on_portal or self._order[index] != self._peer.me.address.port)

    def _done_in_order(self) -> int:
        """The depth below which every call was answered, or failed: the first eight are tried in a random order."""
        depth = 0
        while depth in self._done:
            depth += 1
        return depth

    def _met(self, other: Contact, answer: SeekAnswer, *, at_portal: bool) -> None:
        if answer.connected:
            self.found(other)
            return
        self._remember(other)
        if at_portal:
            self._at_portal[other.peer] = None
        self.depth = max(self.depth, min(answer.depth, len(self._indices)))
        for fellow in answer.fellows:
            if self.active and self._remember(fellow):
                self._try(fellow, lambda: None)  # so that it knows of us as well

    def _remember(self, fellow: Contact) -> bool:
        """Whether it was news. Nobody is remembered beyond the limit, so seekers do not call each other for ever."""
        if fellow.peer == self._peer.me.peer or fellow.peer in self._fellows or len(self._fellows) >= FELLOWS_MAX:
            return False
        self._fellows[fellow.peer] = fellow
        return True

    def on_seek(self, call: Incoming, seek: Seek) -> None:
        if not self._peer.is_present:
            call.refuse(Refusal.LEAVING, "this peer is leaving the channel")
            return
        connected = self._peer.state is State.CONNECTED
        call.answer(SeekAnswer(connected, self.depth, () if connected else self._told_fellows()))
        if seek.connected:
            self.found(call.caller)
        elif not connected:
            self._remember(call.caller)

    # -- somebody is connected

    def on_connected(self, call: Incoming, _statement: Connected) -> None:
        call.answer(Connected())
        self.found(call.caller)

    def found(self, contact: Contact) -> None:
        """This one can weave us in."""
        if not self.active or len(self._found) >= FELLOWS_MAX:
            return
        self._round += 1  # the search is over; what it still brings does not count
        self._fellows.pop(contact.peer, None)
        self._found[contact.peer] = contact
        self._join_one()

    def _join_one(self) -> None:
        if self._joining or self._invited or not self._found:
            return
        contact = self._found.pop(next(iter(self._found)))
        self._joining = True

        def over(accepted: bool) -> None:
            self._joining = False
            self._invited = accepted
            if accepted:
                self._wait(self._peer.settings.join_s, self._still_seeking)
            elif self.active:
                self._wait(self._pause(), self._still_seeking)

        self._peer.joining.join_through(contact, over)

    def _still_seeking(self) -> None:
        """No neighbour came of it. Ask one other peer that we have heard of, and if that does not help search again."""
        self._invited = False
        if not self.active:
            return
        if not self._found and not self._asked_cache:
            self._asked_cache = True
            contact = self._peer.contacts.pick(self._fellows)
            if contact is not None:
                self._found[contact.peer] = contact
        if self._found:
            self._join_one()
        else:
            self.start()

    def _barring(self, address: Address) -> tuple[Refusal, ...]:
        """Answers that keep us out for good. Along the port order, other channels and programs are to be expected;
        at an address that was given with its port, they are a mistake that a person must hear of."""
        return tuple(BARRED_BY) if address in self._portals else BARRED_ANYWHERE

    # -- nobody is connected

    def _exhausted(self) -> None:
        """Found the channel, or leave it to a fellow that goes before us. If somebody is there who does not let us in,
        then we are not the first, and a second channel of the same name would be in nobody's interest."""
        if not self.active or self._joining or self._invited:
            return
        if self._barred is not None:
            self._peer.happened(self._barred)
            self._wait(self._pause(), self._ask_again)
            return
        self.depth = len(self._indices)
        ahead = (each.peer < self._peer.me.peer and self._could_found(each) for each in self._fellows.values())
        if self._on_portal and not any(ahead):
            self._peer.found_channel()
            return
        self._wait(self._pause(), self._ask_again)

    def _could_found(self, fellow: Contact) -> bool:
        """Whether it can be found at a portal: it answered there, or listens where one would be looked for. One that
        listens deeper than anybody looks cannot, and must not be waited for."""
        address = fellow.address
        in_reach = any(self._order[index] == address.port for index in range(self._peer.settings.search_depth))
        return fellow.peer in self._at_portal or any(
            address == portal or (portal.host == address.host and not portal.port and in_reach)
            for portal in self._portals
        )

    def _ask_again(self) -> None:
        if self.active and not self._joining and not self._invited:
            for peer in sorted(self._fellows)[:TRIES_AT_ONCE]:  # who goes before us: if it is dead, we must know
                self._try(self._fellows[peer], lambda: None)
            self.start()

    def _pause(self) -> float:
        return self._peer.settings.seek_wait_s * (0.5 + self._peer.world.random.random())

    def _wait(self, delay_s: float, act: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._peer.world.after(delay_s, act)

    def knock_at_portals(self, on_found: Callable[[Contact], None]) -> None:
        """For a member that nobody of its cache answers: look at some of the portals' ports, next time at others."""

        def on_answer(call: Call, answer: Message) -> None:
            if isinstance(answer, SeekAnswer) and answer.connected:
                on_found(call.caller)

        for portal in self._portals[:PORTALS_KNOCKED]:
            if portal.port:
                Outgoing(self._peer, portal, self._question(), on_answer)
                continue
            for step in range(DOORS_KNOCKED):
                index = (self._door + step) % self._peer.settings.search_depth
                Outgoing(self._peer, Address(portal.host, self._order[index]), self._question(), on_answer)
        self._door += DOORS_KNOCKED

    def tell_fellows(self) -> None:
        """We are connected: whoever still seeks may come through us."""
        for fellow in self._fellows.values():
            Outgoing(self._peer, fellow, Connected(), lambda _call, _answer: None)
        self._fellows.clear()
