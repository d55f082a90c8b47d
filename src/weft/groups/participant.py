"""One program's part in all groups of a channel: the parts meet here, and notes go to the part that handles them.

No sockets, no clock, no randomness: all of it comes from the medium. Nothing that comes from there is trusted: what is
malformed is counted and dropped.
"""

from collections import Counter
from typing import TYPE_CHECKING

from weft.groups.attendance import Attendance
from weft.groups.budget import Budget
from weft.groups.codec import Note, decode, encode, is_ours
from weft.groups.conversation import Conversation
from weft.groups.directory import Change, Directory
from weft.groups.discovery import Discovery
from weft.groups.errors import NoSuchGroup
from weft.groups.events import GroupOffered, MemberJoined, MemberLeft, Refused
from weft.groups.fields import Charter, Roster, Stand, pack_rosters
from weft.groups.history import KeptGroup, MemoryStore, Store
from weft.groups.known import Known
from weft.groups.limits import DESCRIPTION_BYTES_MAX, NAME_BYTES_MAX
from weft.groups.messages import Arrival, Ask, Farewell, Listing, Page, Presence, Said, Standing, Suspect, Want
from weft.groups.names import GroupId, Member, Message, MessageId
from weft.groups.settings import Keep, Settings
from weft.wire import PeerId
from weft.wire.errors import WireError

if TYPE_CHECKING:
    from weft.groups.medium import Medium, Timer

SAVE_S = 0.5
"""Changes reach the store's file after this."""


class Participant(Known):
    """Driven by its medium; the application calls `create`, `join`, `listen`, `reject`, `leave`, `post`."""

    def __init__(
        self, medium: "Medium", name: str, store: Store | None = None, settings: Settings | None = None
    ) -> None:
        _check_text("name", name, NAME_BYTES_MAX)
        self.medium = medium
        self.settings = settings or Settings()
        self.store = store or MemoryStore()
        known = self.store.member()
        self.me = Member(known.id if known is not None else medium.random.getrandbits(64) or 1, name)
        if known != self.me:
            self.store.set_member(self.me)
        self.directory = Directory()
        self.conversations: dict[GroupId, Conversation] = {}
        self.budget = Budget(self.settings.pages_bytes_per_s, self.settings.pages_burst_bytes, medium.now())
        self.attendance = Attendance(self)
        self.discovery = Discovery(self)
        self._rejected: dict[GroupId, None] = {}
        self._listening: dict[GroupId, None] = {}
        """Groups that we hear and are not in."""
        self._unsaved: dict[GroupId, None] = {}
        self._save_timer: Timer | None = None
        self._told_refused: dict[str, None] = {}
        self._is_open = False
        self.malformed = 0
        """Notes that were dropped."""
        self.said: Counter[str] = Counter()
        """Notes by kind, ..."""
        self.said_bytes: Counter[str] = Counter()
        for kept in self.store.groups():
            self.directory.merge(kept.roster)
            for stand in kept.roster.stands:
                if stand.step % 2:
                    self.attendance.learned(stand.member)
            if kept.joined:
                self._converse(kept.roster.group)

    # -- coming and going

    def arrive(self) -> None:
        """We have just connected: tell, and ask. What was rejected before may be offered again."""
        self._is_open = True
        self._rejected.clear()
        self.discovery.arrive(first=True)
        self.attendance.start()
        for group, book in self.directory.books.items():
            if book.charter is not None and group not in self.conversations:
                self.medium.tell(GroupOffered(self.info(group)))
        self._ask_everywhere(tells=True)

    def _ask_everywhere(self, *, tells: bool) -> None:
        for number, talk in enumerate(self.conversations.values()):
            self.medium.after(number / self.settings.asks_per_s, self._begin, talk, tells)

    def _begin(self, talk: Conversation, tells: bool) -> None:
        if self._is_open and self.conversations.get(talk.group) is talk:
            talk.asking.begin(tells=tells)

    def depart(self) -> None:
        """We are about to disconnect, and stay a member of our groups."""
        if self._is_open:
            self.say(Farewell(self.me.id))
        self.stop()

    def stop(self) -> None:
        """Nothing is said any more; everything is saved."""
        self._is_open = False
        self.attendance.stop()
        for talk in self.conversations.values():
            talk.stop()
            talk.prune()
        self._save()

    # -- groups

    def create(self, description: str, keep: Keep | None = None, group: GroupId | None = None) -> GroupId:
        """A new group with us in it."""
        _check_text("description", description, DESCRIPTION_BYTES_MAX)
        if group is None:
            group = self.medium.random.getrandbits(64) or 1
        if self.is_in(group):
            return group
        charter = Charter(self.me.id, description, keep or Keep())
        self._merge_own(Roster(group, charter, ()))
        self._step(group, odd=True)
        self.say_roster(self.directory.roster(group))
        self._converse(group).asking.begin(tells=True)
        return group

    def join(self, group: GroupId) -> None:
        if self.is_in(group):
            return
        self._check_known(group)
        self._rejected.pop(group, None)
        stand = self._step(group, odd=True)
        self.say(Standing(group, stand.member, stand.name, stand.step))
        self._converse(group).asking.begin(tells=True)

    def listen(self, group: GroupId) -> None:
        """Hear a group without being in it: nobody is told, and its lists stay as they are."""
        self._check_known(group)
        self._converse(group, listening=not self.is_in(group)).asking.begin(tells=True)

    def leave(self, group: GroupId) -> None:
        """For good: our history of it stays in the store, and we get nothing more of it."""
        talk = self.conversations.pop(group, None)
        if talk is None:
            raise NoSuchGroup(f"group {group:016x} was not joined")
        talk.stop()
        if group in self._listening:
            del self._listening[group]
            return
        stand = self._step(group, odd=False)
        self.say(Standing(group, stand.member, stand.name, stand.step))

    def reject(self, group: GroupId) -> None:
        """Not offered again until we next arrive."""
        self._rejected[group] = None

    def post(self, group: GroupId, data: bytes, parent: MessageId | None = None) -> Message:
        """Say something in a group; it is delivered to us at once, like anybody's."""
        if not self.is_in(group):
            raise NoSuchGroup(f"group {group:016x} was not joined: join it before speaking")
        return self.conversations[group].say(data, parent)

    def _check_known(self, group: GroupId) -> None:
        book = self.directory.books.get(group)
        if book is None or book.charter is None:
            raise NoSuchGroup(f"no group {group:016x} is known here; wait until it is offered, or create it")

    def _converse(self, group: GroupId, *, listening: bool = False) -> Conversation:
        self._listening.pop(group, None)
        if listening:
            self._listening[group] = None
        if group not in self.conversations:
            charter = self.directory.books[group].charter
            self.conversations[group] = Conversation(self, group, charter.keep if charter is not None else Keep())
        return self.conversations[group]

    def _step(self, group: GroupId, *, odd: bool) -> Stand:
        """Our own next step: in or out."""
        old = self.directory.books[group].stands.get(self.me.id)
        step = (old.step if old is not None else 0) + 1
        step += (step % 2 == 1) != odd
        stand = Stand(self.me.id, self.me.name, step)
        self._merge_own(Roster(group, None, (stand,)))
        return stand

    def _merge_own(self, roster: Roster) -> None:
        self.directory.merge(roster)
        self._unsaved[roster.group] = None
        self.has_changed()

    # -- told by the medium

    def on_message(self, peer: PeerId, data: bytes) -> None:
        """A payload of the channel. What is no group message is none of our business."""
        if not is_ours(data) or not self._is_open or peer == self.medium.me:
            return
        try:
            self._handle(peer, decode(data), len(data))
        except WireError:
            self.malformed += 1

    def _handle(self, peer: PeerId, note: Note, size: int) -> None:
        attendance = self.attendance
        match note:
            case Said():
                attendance.heard(peer, note.post.author)
                if (talk := self.conversations.get(note.group)) is not None:
                    talk.on_said(peer, note)
            case Page():
                attendance.heard(peer)
                if (talk := self.conversations.get(note.group)) is not None:
                    talk.on_page(peer, note, size)
                else:
                    self.budget.spend(size, self.medium.now())
            case Ask():
                attendance.heard(peer)
                if (talk := self.conversations.get(note.group)) is not None:
                    talk.on_ask(peer, note)
            case Want():
                attendance.heard(peer)
                if (talk := self.conversations.get(note.group)) is not None:
                    talk.on_want(peer, note)
            case Presence():
                attendance.heard(peer, note.member)
                attendance.on_presence(peer, note)
                self.discovery.on_presence(peer, note)
                for holding in note.holdings:
                    if (talk := self.conversations.get(holding.group)) is not None:
                        talk.on_holding(holding)
            case Arrival():
                attendance.heard(peer, note.member)
                self.discovery.on_arrival(peer, note)
            case Listing():
                attendance.heard(peer)
                self.discovery.on_listing(peer, note)
            case Standing():
                self.discovery.on_standing(peer, note)
                attendance.heard(peer, note.member)
            case Suspect():
                attendance.heard(peer)
                attendance.on_suspect(peer, note)
            case Farewell():
                attendance.on_farewell(peer, note)

    def on_missed(self) -> None:
        """The channel could not give us everything: compare lists and ask in all groups."""
        if self._is_open:
            self.discovery.arrive(first=False)
            self._ask_everywhere(tells=False)

    def on_neighbour_lost(self, peer: PeerId) -> None:
        """A link broke without a word."""
        if self._is_open:
            self.attendance.on_neighbour_lost(peer)

    # -- for the parts

    def say(self, note: Note) -> None:
        if self._is_open:
            data = encode(note)
            kind = type(note).__name__
            self.said[kind] += 1
            self.said_bytes[kind] += len(data)
            self.medium.broadcast(data)

    def say_roster(self, roster: Roster) -> None:
        self.say(Listing(0, self.directory.hash, False, True, 0, (), (), pack_rosters([roster])))

    def refuse(self, what: str) -> None:
        if what not in self._told_refused:
            self._told_refused[what] = None
            self.medium.tell(Refused(what))

    def on_change(self, change: Change) -> None:
        """Lists have changed by what somebody said."""
        group = change.group
        talk = self.conversations.get(group)
        if talk is not None and (charter := self.directory.books[group].charter) is not None:
            talk.keep = charter.keep
        for old, new in change.stands:
            if new.member == self.me.id:
                self._defend(group, new)
                continue
            if new.step % 2:
                self.attendance.learned(new.member)
            was_in = old is not None and old.step % 2 == 1
            if talk is not None and was_in != (new.step % 2 == 1):
                who = Member(new.member, new.name)
                self.medium.tell(MemberLeft(group, who) if was_in else MemberJoined(group, who))
        if change.founded and talk is None and group not in self._rejected:
            self.medium.tell(GroupOffered(self.info(group)))
        self._unsaved[group] = None
        self.has_changed()

    def _defend(self, group: GroupId, told: Stand) -> None:
        """Only we decide where we stand. (Or our own store was lost, or is an old copy.)"""
        is_in = self.is_in(group)
        if is_in != (told.step % 2 == 1):
            stand = self._step(group, odd=is_in)
            self.say(Standing(group, stand.member, stand.name, stand.step))

    def has_changed(self) -> None:
        if self._save_timer is None and self._is_open:
            self._save_timer = self.medium.after(SAVE_S, self._save)

    def _save(self) -> None:
        if self._save_timer is not None:
            self._save_timer.cancel()
            self._save_timer = None
        for group in self._unsaved:
            self.store.save_group(KeptGroup(self.directory.roster(group), self.is_in(group)))
        self._unsaved.clear()
        self.store.commit()


def _check_text(what: str, text: str, bytes_max: int) -> None:
    if len(text.encode()) > bytes_max or "\0" in text:
        raise ValueError(f"a {what} has at most {bytes_max} bytes, and no NUL in it")
