"""`Conversation`: one group that this participant reads. Ordering, history and catching up meet here.

All messages, live or from history, go through `receive`: the causal order decides when each is delivered, and every
delivered message is stored.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING

from broadloom.groups import proofs
from broadloom.groups.causal_order import CausalOrder, Delivery
from broadloom.groups.history_client import HistoryClient
from broadloom.groups.history_server import HistoryServer
from broadloom.groups.message_fields import HistoryDigest, unpack_posts
from broadloom.groups.message_set import MessageSet
from broadloom.groups.messages import HistoryPage, HistoryRequest, PostMessage, PostRequest
from broadloom.groups.model import GroupId, GroupMessage, MemberId, MessageId, Post
from broadloom.groups.runtime import DelayedCall
from broadloom.groups.settings import MESSAGE_IDS_MAX
from broadloom.groups.suppression import RecentDict
from broadloom.wire import PeerId
from broadloom.wire.xdr import WireError

if TYPE_CHECKING:
    from broadloom.groups.participant import Participant
    from broadloom.groups.settings import RetentionPolicy

RECENT_DIGESTS_MAX = 256
"""Our own recent digests: a member that reports one of them is only slightly behind."""
UNAVAILABLE_S = 600.0
"""Messages that did not arrive are requested again after this time, if another member has them. That they are not
available is only a claim, and a member that has them may have come back."""
PRUNE_AFTER_MESSAGES = 64
"""Retention is applied after this many messages."""


class Conversation:
    def __init__(self, participant: "Participant", group: GroupId, retention: "RetentionPolicy") -> None:
        self.participant = participant
        self.group = group
        self.retention = retention
        self._runtime = participant.runtime
        self._settings = participant.settings
        self.history = participant.store.history(group)
        self.order = CausalOrder()
        self.order.received.add_all(self.history.stored().items())
        self.order.received.add_all(self.history.forgotten().items())
        self.history_client = HistoryClient(self)
        self.history_server = HistoryServer(self)
        self._names: dict[MemberId, str] = {}
        self._wait_timer = DelayedCall(participant.runtime)
        self._mismatch_timer = DelayedCall(participant.runtime)
        self._unavailable_timer = DelayedCall(participant.runtime)
        self._recent_digests: RecentDict[int, None] = RecentDict(RECENT_DIGESTS_MAX)
        self._digest: HistoryDigest | None = None
        self._unpruned_count = 0

    def stop(self) -> None:
        self.history_client.stop()
        self.history_server.stop()
        self._wait_timer.cancel()
        self._mismatch_timer.cancel()
        self._unavailable_timer.cancel()

    # -- sending

    def send(self, data: bytes, parent_id: MessageId | None) -> GroupMessage:
        me = self.participant.me
        if parent_id is not None and not self.order.was_delivered(parent_id):
            raise ValueError(f"cannot reply to {parent_id}: that message was not received")
        mine = self.order.received.get(me.id)
        sequence = (mine.last if mine is not None else 0) + 1
        post = Post(me.id, sequence, parent_id, int(1000 * self._runtime.wall_time_s()), data)
        signer = self._runtime.post_signer
        if signer is not None:
            post = proofs.signed(signer, self.group, self.participant.nonce, post)
        self.receive([post], {me.id: me.name}, sent=post)
        self.participant.store.commit()  # before it is sent: a sequence number must never be used twice
        self.participant.send(PostMessage(self.group, me.name, post))
        return self.group_message(post, me.name)

    def group_message(self, post: Post, name: str, *, is_orphan: bool = False) -> GroupMessage:
        """A post as the application sees it."""
        has_tickets = self._runtime.post_signer is not None
        return GroupMessage.from_post(self.group, post, name, is_orphan=is_orphan, has_tickets=has_tickets)

    # -- receiving

    def receive(self, posts: Iterable[Post], names: dict[MemberId, str], *, sent: Post | None = None) -> int:
        """Accept messages, live or from history; returns how many are new. `sent` is our own: it is not delivered."""
        now, new_count, rejected_before = self._runtime.now(), 0, self.order.rejected_count
        for post in posts:
            if post.is_stripped and not self.retention.ids_only and self._runtime.post_signer is not None:
                self.participant.forged_messages += 1  # another member took the text away
                continue
            deliveries = self.order.receive(post, now)
            if deliveries is None:
                continue
            new_count += 1
            if post.author in names:
                self._names[post.author] = names[post.author]
            self._deliver(deliveries, sent)
        if new_count:
            self._digest = None
        if self.order.rejected_count > rejected_before:
            self.participant.report_limit("too many messages wait for their parents")
        self._set_wait_timer()
        return new_count

    def _deliver(self, deliveries: list[Delivery], sent: Post | None = None) -> None:
        for post, is_orphan in deliveries:
            name = self._names.get(post.author) or self.history.names.get(post.author, "")
            self.history.add(proofs.stripped(post) if self.retention.ids_only else post, name)
            if post is not sent:
                self._runtime.deliver(self.group_message(post, name, is_orphan=is_orphan))
        self._unpruned_count += len(deliveries)
        if self._unpruned_count >= PRUNE_AFTER_MESSAGES:
            self.prune()
        self.participant.has_changed()

    def prune(self) -> None:
        self._unpruned_count = 0
        self.history.prune(self.retention, int(1000 * self._runtime.wall_time_s()))

    def on_message(self, peer: PeerId, message: PostMessage | HistoryRequest | PostRequest) -> None:
        match message:
            case PostMessage():
                self._on_post_message(peer, message)
            case HistoryRequest():
                self._on_history_request(peer, message)
            case PostRequest():
                self.history_server.on_post_request(peer, message)

    def _on_post_message(self, peer: PeerId, message: PostMessage) -> None:
        if message.post.author == self.participant.me.id:
            raise WireError("another peer posts under our member id")
        post, signer = message.post._replace(verified_name=self._runtime.verified_name(peer)), self._runtime.post_signer
        if signer is not None and post.proof:
            post = post._replace(credential=signer.credential_of(peer))
        self.receive(self._verified([post]), {post.author: message.name})

    def _verified(self, posts: Iterable[Post], page_of: PeerId | None = None) -> Iterator[Post]:
        """The posts that are new. On a channel with tickets, those whose author has not signed them are dropped, and
        a forged one ends the page of a peer."""
        signer = self._runtime.post_signer
        for post in posts:
            if self.order.received.has(post.id):
                continue
            if signer is None:
                yield post._replace(proof=b"", credential=b"") if post.proof else post
                continue
            if post.proof and page_of is not None:
                self.participant.pages.on_verification()
            proven = proofs.verified(signer, self.group, post)
            if proven is not None:
                yield proven
                continue
            self.participant.forged_messages += 1
            if page_of is not None and (not post.proof or signer.accepts(post.credential)):
                self.participant.pages.on_forged(page_of)
                return

    def on_history_page(self, peer: PeerId, message: HistoryPage) -> None:
        """What a page says of itself is a hint, and may be false. Only its posts count."""
        posts: tuple[Post, ...] = ()
        if self.history_server.is_pending or not self.order.received.has_all(message.contents):
            posts = unpack_posts(message.body)
        new_count = self.receive(self._verified(posts, peer), dict(message.names))
        if not self.participant.pages.is_ignored(peer):
            self.history_server.on_history_page(peer, message, posts)
            self.history_client.on_history_page(peer, message, new_count)

    def _on_history_request(self, peer: PeerId, message: HistoryRequest) -> None:
        held = MessageSet(message.held)
        self.history_server.on_history_request(peer, message, held)
        self.history_client.on_held_elsewhere(held)

    # -- waiting for parents

    def _set_wait_timer(self) -> None:
        if not self._wait_timer.is_pending and self.order.waiting_since is not None:
            self._wait_timer.start(self._settings.parent_request_delay_s, self._check_waiting)

    def _check_waiting(self) -> None:
        """Request missing parents and release overdue orphans, unless history is being fetched."""
        now = self._runtime.now()
        if self.history_client.is_active:
            self._set_wait_timer()
            return
        while missing := self.order.missing_parents(now - self._settings.parent_request_delay_s, MESSAGE_IDS_MAX):
            self.participant.send(PostRequest(self.group, tuple(missing)))
        if self._settings.orphan_timeout_s is not None:
            deliveries = self.order.release_overdue(now - self._settings.orphan_timeout_s)
            if deliveries:
                self._deliver(deliveries)
        self._set_wait_timer()

    def give_up(self, missing: MessageSet, pruned: MessageSet) -> None:
        """Mark messages as unavailable. Without an orphan timeout, replies keep waiting."""
        if self._settings.orphan_timeout_s is not None:
            self._deliver(self.order.give_up(missing, pruned))
            self._digest = None
            if self.order.unavailable and not self._unavailable_timer.is_pending:
                self._unavailable_timer.start(UNAVAILABLE_S, self._request_unavailable)

    def _request_unavailable(self) -> None:
        """The digest stays as it is meanwhile, so that other members do not make requests too."""
        self.order.forget_unavailable()
        self.history_client.begin(always_report=False)

    # -- comparing histories

    def history_digest(self) -> HistoryDigest:
        """Covers messages received or known to be lost, so that it converges to the same value at all members."""
        if self._digest is None:
            known = MessageSet(self.order.received.items())
            known.add_all(self.order.unavailable.items())
            hashed = blake2b(digest_size=8)
            for author in sorted(known):
                hashed.update(repr((int(author), list(known[author]))).encode())
            digest = int.from_bytes(hashed.digest(), "big")
            self._digest = HistoryDigest(self.group, min(known.count, (1 << 64) - 1), digest)
            self._recent_digests.put(digest, None)
        return self._digest

    def on_history_digest(self, reported: HistoryDigest) -> None:
        """Request history if the difference persists."""
        if self._differs(reported) and not self._mismatch_timer.is_pending:
            wait_s = self._settings.reply_window_s * (2 + self._runtime.random.random())
            self._mismatch_timer.start(wait_s, self._check_mismatch, reported, self.order.received.count)

    def _check_mismatch(self, reported: HistoryDigest, count: int) -> None:
        if self._differs(reported) and self.order.received.count == count:
            self.history_client.on_digest_mismatch()

    def _differs(self, reported: HistoryDigest) -> bool:
        return self.history_digest().digest != reported.digest and reported.digest not in self._recent_digests
