"""One peer: its parts, its state, and which part handles what.

Driven by its world: `on_call` for a line that somebody dialled, and the owners of lines (calls, links) for all that
happens on them. The parts know each other through the peer; each keeps its own state and nothing else's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft.fabric.beacons import Beacons
from weft.fabric.calls import Call, Incoming
from weft.fabric.contacts import ContactCache
from weft.fabric.diameter import Diameter
from weft.fabric.events import Barred, Event, Note, StateChanged, Why
from weft.fabric.floods import FLOODED_NUMBERS, Floods
from weft.fabric.joining import Joining
from weft.fabric.leaving import Leaving
from weft.fabric.links import Links
from weft.fabric.merging import Merging
from weft.fabric.repair import Repair
from weft.fabric.seeking import Seeking
from weft.fabric.settings import Settings
from weft.fabric.state import State
from weft.fabric.stream import Stream
from weft.fabric.views import Views
from weft.fabric.walks import Walks
from weft.wire import Address, Contact, WireError, decode
from weft.wire import calls as c
from weft.wire import links as k
from weft.wire.broadcast import Kind, Priority
from weft.wire.calls import Refusal
from weft.wire.codec import number_of

if TYPE_CHECKING:
    from weft.fabric.link import Link
    from weft.fabric.observer import Observer
    from weft.fabric.seal import Seal
    from weft.fabric.world import Line, World

TORN = (Why.LOST, Why.SILENT, Why.PROTOCOL, Why.SLOW, Why.BARRED)
"""Ends of a link after which the neighbour is gone and has told nobody."""


@dataclass(slots=True)
class Counters:
    """What a peer has done, for status and tests."""

    sent: int = 0
    delivered: int = 0
    duplicates: int = 0
    expired: int = 0
    """Copies past retention, not taken for new."""
    authors_refused: int = 0
    """Messages of authors beyond the number that is tracked."""
    waiting_refused: int = 0
    """Messages that came too early when too many waited already."""
    hearsay_refused: int = 0
    """Unbelievable numbers of messages that a neighbour claimed to exist."""
    missed: int = 0
    outlived: int = 0
    """Of these, messages that came after their lifetime."""
    malformed: int = 0
    unknown: int = 0
    strangers: int = 0
    """Calls of another protocol, version or channel."""
    refused_calls: int = 0
    """Calls hung up on because too many were under way, or after leaving."""
    impostors: int = 0
    """Calls of peers that claimed the id of another."""
    forged: int = 0
    """Messages that their author did not sign."""
    forbidden: int = 0
    """Messages of authors that may only listen."""
    unproven: int = 0
    """Credentials that were not good."""
    culled: int = 0
    """Messages that a neighbour far behind was spared."""
    fell_behind: int = 0
    """Times that a neighbour was so far behind that it got only names."""
    choked: int = 0
    """Neighbours given up because they did not read what they were sent."""


class Peer:
    """A participant of one channel. `start`, `broadcast` and `leave` are the application's; the rest the world's."""

    def __init__(
        self,
        world: "World",
        me: Contact,
        channel_id: bytes,
        portals: tuple[Address, ...] = (),
        settings: Settings | None = None,
        *,
        seal: "Seal | None" = None,
        observer: "Observer | None" = None,
    ) -> None:
        self.world = world
        self.me = me
        self.channel_id = channel_id
        self.settings = settings or Settings()
        self.observer = observer
        self.deaf = False
        """Does not read for now, because its application does not; so it cannot blame neighbours for being silent."""
        self.state = State.SEEKING
        self.counters = Counters()
        self.contacts = ContactCache(me.peer, self.settings.cache_max, world.random)
        self.links = Links(self)
        self.floods = Floods(self)
        self.diameter = Diameter(self)
        self.stream = Stream(self, seal)
        self.walks = Walks(self)
        self.joining = Joining(self)
        self.seeking = Seeking(self, portals)
        self.views = Views(self)
        self.repair = Repair(self)
        self.leaving = Leaving(self)
        self.beacons = Beacons(self)
        self.merging = Merging(self)
        self._calls: dict[Incoming, None] = {}
        self._is_enough = False
        self._duplicates_told = 0
        self._was_told_out = False
        self.questions: dict[type[Any], Callable[[Incoming, Any], None]] = {
            c.Seek: self.seeking.on_seek,
            c.JoinRequest: self.joining.on_join,
            c.Offer: self.walks.on_offer,
            c.PortRequest: self.joining.on_port,
            c.Connected: self.seeking.on_connected,
            c.Probe: self.merging.on_probe,
        }
        self._handlers: dict[type[Any], Callable[[Link, Any], None]] = {
            k.Greeting: self.stream.reconcile.on_greeting,
            k.Want: self.stream.gaps.on_want,
            k.Known: self.stream.reconcile.on_known,
            k.Gone: self.stream.gaps.on_gone,
            k.Heartbeat: lambda _link, _message: None,
            k.Walk: self.walks.on_walk,
            k.WalkOver: self.walks.on_walk_over,
            k.Cut: self.leaving.on_cut,
            k.CutDone: self.leaving.on_cut_done,
            k.Leave: self.leaving.on_leave,
            k.PortSearch: self.repair.on_port_search,
            k.DiameterEstimate: self.diameter.on_estimate,
            k.Beacon: self.beacons.on_beacon,
            k.Announce: self.stream.tree.on_announce,
            k.Prune: self.stream.tree.on_prune,
            k.Graft: self.stream.tree.on_graft,
            k.Progress: self.stream.progress.on_report,
            k.View: self.views.on_view,
            k.Shutdown: self.leaving.on_shutdown,
        }
        if self.stream.signing is not None:
            self._handlers[k.Credential] = self.stream.signing.on_credential
            self._handlers[k.Introduce] = self.stream.signing.on_introduce

    # -- for the application

    def start(self) -> None:
        """Look for the channel and join it."""
        self.world.after(self.settings.tick_s * (0.5 + self.world.random.random()), self._tick)
        self.seeking.start()

    def broadcast(
        self, data: bytes, *, kind: int = Kind.DATA, priority: int = Priority.NORMAL, lifetime_ms: int = 0
    ) -> int:
        """Send to all members; returns this author's sequence number."""
        if self.state is not State.CONNECTED:
            raise RuntimeError(f"only a connected peer can broadcast; this one is {self.state.value}")
        return self.stream.broadcast(data, kind, priority, lifetime_ms)

    def leave(self) -> None:
        """Go in good order; the state is LEFT when that is done."""
        self.leaving.start()

    def shut_down(self) -> None:
        """Close the channel for everyone."""
        self.leaving.shut_down()

    # -- for the world

    def on_call(self, line: "Line") -> None:
        """Somebody dialled us. If too many calls are under way, the oldest makes room: an honest caller says everything
        at once and is answered at once, so who has been on the line for long only wants to exhaust us."""
        if self.state is State.LEFT:
            self.counters.refused_calls += 1
            line.close()
            return
        if len(self._calls) >= self.settings.calls_max:
            self.counters.refused_calls += 1
            next(iter(self._calls)).hang_up()
        self._calls[Incoming(self, line)] = None

    # -- for the parts

    @property
    def is_present(self) -> bool:
        """On the channel or on its way there."""
        return self.state not in (State.LEAVING, State.LEFT)

    @property
    def is_member(self) -> bool:
        """Has a starting point in the stream and takes part in the fabric's affairs."""
        return self.state in (State.PARTIAL, State.CONNECTED) and self.stream.settled

    @property
    def obeys_shutdown(self) -> bool:
        if self.settings.obey_shutdown is not None:
            return self.settings.obey_shutdown
        return self.stream.signing is None

    def note(self, text: str) -> None:
        self.world.observe(Note(text))

    def not_admitted(self, refusal: Refusal, text: str) -> None:
        """Somebody of the channel does not let us in. A member that has no neighbour left has been put out, by an
        expired or withdrawn ticket, and shall know it; for one that still seeks, `seeking` judges."""
        if self.state is State.CONNECTED and not len(self.links) and not self._was_told_out:
            self._was_told_out = True
            self.happened(Barred(refusal, text))

    def happened(self, event: Event) -> None:
        """To neighbours or to our state: whoever watches or records shall know."""
        self.world.observe(event)
        if self.observer is not None:
            self.observer.happened(event)

    def calls_ended(self, call: Call) -> None:
        if isinstance(call, Incoming):
            self._calls.pop(call, None)

    def on_link_frame(self, link: "Link", frame: bytes) -> None:
        """Everything on a link but broadcasts."""
        if number_of(frame) in FLOODED_NUMBERS:
            message = self.floods.on_frame(link, frame)
            if message is None:
                return
        else:
            message = decode(frame)
        handler = self._handlers.get(type(message))
        if handler is None:
            raise WireError(f"{type(message).__name__} does not belong on a link")
        handler(link, message)

    def on_links_changed(self, why: Why | None) -> None:
        """A link came (no reason) or went, or the starting point was found."""
        self.views.links_changed()
        if not self.is_present:
            self.leaving.look_whether_done()
            return
        if why in TORN:
            self.merging.alarm()
        if why is None:
            self._was_told_out = False
        if self.links.holes == 0:
            self.joining.small = False
            self.repair.stop()
        elif why in TORN or why is Why.LEFT:
            self.repair.alarm()
        else:
            self.repair.kick()
        self._advance()

    @property
    def few(self) -> int | None:
        """How many peers there are, if so few that everyone is linked to everyone; of more, nobody knows."""
        return len(self.links) + 1 if self.joining.small else None

    def found_channel(self) -> None:
        """Nobody is here: begin the channel."""
        self.stream.reconcile.settle()
        self.joining.small = True
        self.enter(State.CONNECTED)

    def enter(self, state: State) -> None:
        if state is self.state:
            return
        self.state = state
        if state is State.LEFT:
            self._tell_duplicates()
        self.happened(StateChanged(state))
        if state is State.CONNECTED:
            self.beacons.begin()
            self.merging.begin()
            self.seeking.tell_fellows()
        elif state is State.LEAVING:
            self.repair.stop()
            self.links.clear_claims()

    def _advance(self) -> None:
        """Seeking, partially connected, connected: as far as the links that are there allow."""
        if self.state is State.SEEKING and len(self.links) and self.stream.settled:
            self.enter(State.PARTIAL)
            self.world.after(self.settings.join_s, self.enough)
            self.repair.kick()
        if self.state is State.PARTIAL and len(self.links) and (self.links.holes == 0 or self._is_enough):
            self.enough()
        if self.state in (State.SEEKING, State.PARTIAL) and not len(self.links):
            self.enter(State.SEEKING)  # what came of the search is gone again
            self._is_enough = False
            self.seeking.start()

    def enough(self) -> None:
        """All places are filled, or there is no more to be had now. One neighbour suffices to miss nothing."""
        self._is_enough = True
        if self.state is State.PARTIAL:
            self.enter(State.CONNECTED)

    def _tell_duplicates(self) -> None:
        if self.observer is not None and self.counters.duplicates > self._duplicates_told:
            self.observer.duplicates(self.counters.duplicates - self._duplicates_told)
            self._duplicates_told = self.counters.duplicates

    def _tick(self) -> None:
        if self.state is State.LEFT:
            return
        now = self.world.now()
        self.world.after(self.settings.tick_s, self._tick)
        self.stream.tick(now)
        self._tell_duplicates()
        if self.state is State.CONNECTED:
            self.beacons.tick(now)
            self.merging.tick(now)
        for link in list(self.links):
            link.tick(now)
