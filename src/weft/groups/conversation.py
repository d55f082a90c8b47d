"""One group that we are in: its messages in order, its history, and catching up.

Everything that comes, live or from a page, goes through `take`: the order decides when it is delivered, and what is
delivered is kept.
"""

from hashlib import blake2b
from typing import TYPE_CHECKING

from weft.groups.asking import Asking
from weft.groups.fields import Holding, unpack_posts
from weft.groups.intervals import Intervals
from weft.groups.limits import DATA_BYTES_MAX, WANT_MAX
from weft.groups.messages import Ask, Page, Said, Want
from weft.groups.names import GroupId, MemberId, Message, MessageId, Post
from weft.groups.order import Order, Release
from weft.groups.serving import Serving
from weft.wire import PeerId
from weft.wire.errors import WireError

if TYPE_CHECKING:
    from weft.groups.medium import Timer
    from weft.groups.participant import Participant
    from weft.groups.settings import Keep

MARKS_KEPT = 256
"""Our messages were these lately: whoever has the same is only a little behind."""
PRUNE_EVERY = 64
"""Messages; history is cut to its size so often."""


class Conversation:
    def __init__(self, participant: "Participant", group: GroupId, keep: "Keep") -> None:
        self.participant = participant
        self.group = group
        self.keep = keep
        self._medium = participant.medium
        self._settings = participant.settings
        self.history = participant.store.history(group)
        self.order = Order(self._settings.waiting_max, self._settings.waiting_bytes_max)
        for kept in (self.history.held(), self.history.forgotten()):
            for author, spans in kept.items():
                had = self.order.had.setdefault(author, Intervals())
                for first, last in spans:
                    had.add_span(first, last)
        self.order.count = sum(each.count for each in self.order.had.values())
        self.asking = Asking(self)
        self.serving = Serving(self)
        self._names: dict[MemberId, str] = {}
        self._tick: Timer | None = None
        self._marks: dict[int, None] = {}
        self._marked: tuple[int, int] | None = None
        self._unpruned = 0
        self._differing: Timer | None = None

    def stop(self) -> None:
        self.asking.stop()
        self.serving.stop()
        for timer in (self._tick, self._differing):
            if timer is not None:
                timer.cancel()
        self._tick = self._differing = None

    # -- speaking

    def say(self, data: bytes, parent: MessageId | None) -> Message:
        if len(data) > DATA_BYTES_MAX:
            raise ValueError(f"a message of {len(data):,} bytes, at most {DATA_BYTES_MAX:,} are possible in a group")
        me = self.participant.me
        if parent is not None and not self.order.was_delivered(parent):
            raise ValueError("only a message that was received can be answered")
        mine = self.order.had.get(me.id)
        sequence = (mine.last if mine is not None else 0) + 1
        proven = self._medium.proven_name(self._medium.me)
        post = Post(me.id, sequence, parent, int(1000 * self._medium.wall_s()), data, proven=proven)
        message = self._message(Release(post), me.name)
        self.take([post], {me.id: me.name})
        self.participant.store.commit()  # before anybody hears it: a number must never be used twice
        self.participant.say(Said(self.group, me.name, post))
        return message

    # -- receiving

    def take(self, posts: list[Post] | tuple[Post, ...], names: dict[MemberId, str]) -> int:
        """Messages, whatever way they came; returns how many were new."""
        now, fresh, refused = self._medium.now(), 0, self.order.refused
        for post in posts:
            released = self.order.receive(post, now)
            if released is None:
                continue
            fresh += 1
            if post.author in names:
                self._names[post.author] = names[post.author]
            self._deliver(released)
        if fresh:
            self._marked = None
        if self.order.refused > refused:
            self.participant.refuse("more messages wait for others than are kept waiting")
        self._set_tick()
        return fresh

    def _deliver(self, released: list[Release]) -> None:
        for each in released:
            post = each.post
            name = self._names.get(post.author) or self.history.names.get(post.author, "")
            kept = post._replace(data=b"", hollow=True) if self.keep.ids_only else post
            self.history.add(kept, name)
            self._medium.deliver(self._message(each, name))
        self._unpruned += len(released)
        if self._unpruned >= PRUNE_EVERY:
            self.prune()
        self.participant.has_changed()

    def prune(self) -> None:
        self._unpruned = 0
        self.history.prune(self.keep, int(1000 * self._medium.wall_s()))

    def _message(self, release: Release, name: str) -> Message:
        post = release.post
        marks = (release.orphan, post.hollow, post.proven)
        return Message(self.group, post.id, name, post.parent, post.sent_ms, post.data, *marks)

    def on_said(self, peer: PeerId, note: Said) -> None:
        if note.post.author == self.participant.me.id:
            raise WireError("somebody else speaks in our name")
        proven = self._medium.proven_name(peer)
        self.take((note.post._replace(proven=proven) if proven else note.post,), {note.post.author: note.name})

    def on_page(self, peer: PeerId, note: Page, size: int) -> None:
        self.participant.budget.spend(size, self._medium.now())
        fresh = 0
        if not all(self._has_all(author, spans) for author, spans in note.covers):
            fresh = self.take(unpack_posts(note.body), dict(note.names))
        self.serving.on_page(peer, note)
        self.asking.on_page(peer, note, fresh)

    def _has_all(self, author: MemberId, spans: tuple[tuple[int, int], ...]) -> bool:
        had = self.order.had.get(author)
        return had is not None and had.covers(spans)

    def on_ask(self, peer: PeerId, note: Ask) -> None:
        haves: dict[MemberId, Intervals] = {}
        for author, spans in note.haves:
            had = haves.setdefault(author, Intervals())
            for first, last in spans:
                had.add_span(first, last)
        self.serving.on_ask(peer, note, haves)
        self.asking.heard_of(haves)

    def on_want(self, peer: PeerId, note: Want) -> None:
        self.serving.on_want(peer, note)

    # -- what waits

    def _set_tick(self) -> None:
        if self._tick is None and self.order.waits_since is not None:
            self._tick = self._medium.after(self._settings.ask_after_s, self._look)

    def _look(self) -> None:
        """Ask for what others wait for; release what has waited too long, unless history is coming in."""
        self._tick = None
        now = self._medium.now()
        if self.asking.is_active:
            self._set_tick()
            return
        while wanted := self.order.lacking(now - self._settings.ask_after_s, WANT_MAX):
            self.participant.say(Want(self.group, tuple(wanted)))
        if self._settings.orphan_s is not None:
            released = self.order.overdue(now - self._settings.orphan_s)
            if released:
                self._deliver(released)
        self._set_tick()

    def give_up(self, lacking: dict[MemberId, Intervals]) -> int:
        """These are not to be had; returns how many. Who prefers to wait for ever goes on waiting."""
        count = sum(each.count for each in lacking.values())
        if self._settings.orphan_s is not None:
            self._deliver(self.order.give_up(lacking))
            self._marked = None
        return count

    # -- comparing

    def holding(self) -> Holding:
        """What we have had, or know to be lost: the same for all once nobody lacks what another has."""
        if self._marked is None:
            hashed, total = blake2b(digest_size=8), 0
            for author in sorted({*self.order.had, *self.order.gone}):
                spans = self.order.had.get(author, Intervals()).copy()
                for first, last in self.order.gone.get(author, ()):
                    spans.add_span(first, last)
                total += spans.count
                hashed.update(repr((author, list(spans))).encode())
            mark = int.from_bytes(hashed.digest(), "big")
            self._marked = (min(total, (1 << 64) - 1), mark)
            self._marks[mark] = None
            if len(self._marks) > MARKS_KEPT:
                del self._marks[next(iter(self._marks))]
        return Holding(self.group, *self._marked)

    def on_holding(self, told: Holding) -> None:
        """A difference that stays is asked about."""
        if told.mark == self.holding().mark or told.mark in self._marks or self._differing is not None:
            return
        wait_s = self._settings.answer_s * (2 + self._medium.random.random())
        self._differing = self._medium.after(wait_s, self._still_differs, told, self.order.count)

    def _still_differs(self, told: Holding, count: int) -> None:
        self._differing = None
        if told.mark != self.holding().mark and told.mark not in self._marks and self.order.count == count:
            self.asking.differs()
