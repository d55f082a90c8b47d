"""`Service`: a program's view of a delivery service. It reads the directory, and asks desks for everything else."""

import asyncio
import base64
import json
import logging
import os
import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import broadloom
from broadloom.apps.delivery.directory import MAILBOX_PREFIX, PRICES_MAILBOX, Directory, Topic
from broadloom.apps.delivery.entitlements import DESK, METER
from broadloom.apps.delivery.entry import Entry, Offer, decode_entry
from broadloom.apps.delivery.errors import DeniedError, NoDeskError, NoTopicError
from broadloom.apps.delivery.messages import (
    DESK_LAYER,
    METER_LAYER,
    PATHS_MAX,
    Action,
    Audience,
    AudienceQuery,
    DeskReply,
    DeskRequest,
    Grant,
    decode,
    encode,
)
from broadloom.apps.delivery.subscribers import Account, Subscription, decode_account, decode_subscription
from broadloom.channel import Channel
from broadloom.channel.closable import AsyncClosable, close_all
from broadloom.errors import BusyError, NoAnswerError, PeerGoneError, RefusedError, RequestError, UnknownPeerError
from broadloom.mailboxes import Change, ChangeKind, MailboxError, Mailboxes, Watch
from broadloom.protocol.roster.member import Member
from broadloom.security import Ticket
from broadloom.security.pem import encode_pem

if TYPE_CHECKING:
    from broadloom.apps.delivery.feed import Feed
    from broadloom.apps.delivery.membership import Membership
    from broadloom.apps.delivery.producer import Producer

log = logging.getLogger("broadloom")

ANSWER_S = 15.0
"""Time for a desk to answer; withdrawing joins a channel."""
AUDIENCE_S = 2.0
"""Time for a meter to answer how many subscribers are connected."""
DESK_POLL_S = 0.1
TIMEOUT_S = 30.0
SHARED_OPTIONS = ("bootstrap", "advertise_host", "timeout_s", "settings", "local_peers", "rules", "private_keys")
"""Options of `broadloom.connect` that hold for the channels of topics as for the directory."""
NOT_HANDLED = ("no_handler", "busy", "expired", "leaving")
"""Refusals after which another desk can be asked."""


class Service(AsyncClosable):
    """Use it with `async with`. `name` is the channel of the directory, `ticket` the one that its operator has issued;
    the name on it is that of the subscriber. Further options are those of `broadloom.connect`, such as `bootstrap`."""

    def __init__(
        self,
        name: str,
        ticket: str | os.PathLike[str] | Ticket,
        *,
        now: Callable[[], float] = time.time,
        **options: Any,
    ) -> None:
        self.name = name
        self.directory = Directory()
        self._ticket_given = ticket if isinstance(ticket, Ticket) else Ticket.load(ticket)  # type: ignore[arg-type]
        self._options = options
        self._now = now
        self._key = Ed25519PrivateKey.generate()
        """For the tickets of topics: no desk knows it."""
        self._follower: asyncio.Task[None] | None = None
        self._open: dict[Any, None] = {}
        """Feeds, producers and meters, which end with the service."""

    @property
    def subscriber(self) -> str:
        """The name on the ticket."""
        return self._ticket_given.name

    @property
    def channel(self) -> Channel:
        """That of the directory."""
        return self._channel

    async def __aenter__(self) -> Self:
        self._channel = await broadloom.connect(self.name, ticket=self._ticket_given, **self._options)
        try:
            self._boxes = Mailboxes(self._channel)
            if not await self._boxes.wait_until_synced(self._options.get("timeout_s", TIMEOUT_S)):
                log.warning("%s: the directory is not complete yet; the rest follows", self.name)
            watch = await self._boxes.watch(f"{MAILBOX_PREFIX}**", of=DESK)
            while (change := watch.receive_nowait()) is not None:
                self._on_change(change)
            self._follower = asyncio.get_running_loop().create_task(self._follow(watch))
        except BaseException:
            self._channel.abort()
            raise
        return self

    async def aclose(self) -> None:
        """The same as `leave`."""
        await self.leave()

    async def leave(self) -> None:
        """End all that was opened with it, and leave the directory."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._channel.leave)
            stack.push_async_callback(self._boxes.aclose)
            if self._follower is not None:
                stack.push_async_callback(asyncio.wait, (self._follower,))
                stack.callback(self._follower.cancel)
            await close_all(*(each.aclose() for each in tuple(self._open)))

    async def _follow(self, watch: Watch) -> None:
        async for change in watch:
            self._on_change(change)

    def _on_change(self, change: Change) -> None:
        path = change.value.name.removeprefix(MAILBOX_PREFIX)
        try:
            if change.kind is ChangeKind.GONE:
                self.directory.remove(path)
                return
            entry = decode_entry(change.value.data)
            if entry.path != path:
                raise ValueError(f"it is for {entry.path}")
            self.directory.put(entry)
        except ValueError as problem:
            log.warning("%s: the entry %s is ignored: %s", self.name, path, problem)

    # -- the directory

    def topics(self, pattern: str = "**") -> list[Topic]:
        """The topics that match, sorted by path. The path of a category stands for all topics below it."""
        return self.directory.topics(pattern)

    def search(self, text: str) -> list[Topic]:
        """The topics whose path or title has all these words."""
        return self.directory.search(text)

    async def wait_for(self, *patterns: str, timeout_s: float = TIMEOUT_S) -> list[Topic]:
        """Wait until each pattern has a topic, and return all of them. Raises `NoTopicError`."""
        changed = asyncio.Event()
        remove = self.directory.on_change(changed.set)
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    changed.clear()
                    found = [self.topics(pattern) for pattern in patterns]
                    if all(found):
                        return sorted({each.path: each for part in found for each in part}.values(), key=_path)
                    await changed.wait()
        except TimeoutError:
            missing = next(pattern for pattern in patterns if not self.topics(pattern))
            raise NoTopicError(f"{self.name} has no topic {missing}; `broadloom topics list` shows all") from None
        finally:
            remove()

    # -- taking part

    def subscribe(self, *patterns: str, plan: str = "", timeout_s: float | None = TIMEOUT_S) -> "Feed":
        """One feed of all topics that match, also of those that are created later. Use it with `async with`.

        Entering waits until each topic is connected or refused. Raises `NoTopicError`, `DeniedError` if all are
        refused, or `NoDeskError` after `timeout_s`; None waits for a desk without limit.
        """
        from broadloom.apps.delivery.feed import Feed

        return Feed(self, patterns, plan, timeout_s)

    def produce(self, path: str, *, timeout_s: float | None = TIMEOUT_S) -> "Producer":
        """Publish on a topic. Use it with `async with`, which raises as that of `subscribe`."""
        from broadloom.apps.delivery.producer import Producer

        return Producer(self, path, timeout_s)

    async def create(
        self,
        path: str,
        /,
        *,
        producers: Iterable[str] = (),
        topics: Mapping[str, Iterable[str]] | None = None,
        timeout_s: float | None = TIMEOUT_S,
        **offer: Any,
    ) -> Entry:
        """Create a topic with a channel of its own; or with `topics` (names below `path`, and their producers) a
        category with one channel for all. Other parameters are the fields of `Offer`: `title`, `level`, `plans`,
        `qualifications`, `identify_s`."""
        named = {f"{path}/{name}": tuple(each) for name, each in (topics or {}).items()} or {path: tuple(producers)}
        wanted = Offer(path=path, topics=named, **offer)
        await self._ask(DeskRequest(action=Action.CREATE, offer=wanted.as_dict()), timeout_s)
        await self.wait_for(*wanted.topics)
        entry = self.directory.entry(path)
        assert entry is not None
        return entry

    async def close_topic(self, path: str, text: str = "", *, timeout_s: float | None = TIMEOUT_S) -> None:
        """Close an entry, for its creator and operators: its members leave."""
        await self._ask(DeskRequest(action=Action.CLOSE, paths=(path,), text=text), timeout_s)

    async def withdraw(self, name: str, path: str, *, timeout_s: float | None = TIMEOUT_S) -> None:
        """Withdraw the subscription of `name`, for the creator of the entry and operators. Returns when the list of
        revoked tickets is on the channel."""
        await self._ask(DeskRequest(action=Action.WITHDRAW, paths=(path,), name=name), timeout_s)

    async def reinstate(self, name: str, path: str, *, timeout_s: float | None = TIMEOUT_S) -> None:
        """Let a withdrawn subscriber subscribe again."""
        await self._ask(DeskRequest(action=Action.REINSTATE, paths=(path,), name=name), timeout_s)

    async def unsubscribe(self, *paths: str, timeout_s: float | None = TIMEOUT_S) -> None:
        """End subscriptions of one's own: plans are not charged from now on. Leaving a feed does not do this."""
        entries = sorted({topic.entry.path for path in paths for topic in self.topics(path)})
        await self._ask(DeskRequest(action=Action.END, paths=tuple(entries)), timeout_s)

    # -- what desks and meters know

    async def account(self, *, timeout_s: float | None = TIMEOUT_S) -> Account:
        """The subscriber's own subscriptions, and whether it may create topics and is an operator."""
        reply = await self._ask(DeskRequest(action=Action.ACCOUNT), timeout_s)
        return decode_account(reply.account)

    async def subscribers(self, path: str, *, timeout_s: float | None = TIMEOUT_S) -> dict[str, Subscription]:
        """The subscriptions of an entry by name, for its creator and operators; the first `SUBSCRIBERS_MAX` of them.
        Subscribers of topics without plans are not remembered."""
        reply = await self._ask(DeskRequest(action=Action.SUBSCRIBERS, paths=(path,)), timeout_s)
        return {name: decode_subscription(values) for name, values in reply.subscribers.items()}

    async def prices(self) -> dict[str, str]:
        """What each plan costs, as the operator describes it. Plans without a description are missing."""
        try:
            value = await self._boxes.fetch(PRICES_MAILBOX, of=DESK)
            return {str(name): str(text) for name, text in json.loads(value.data).items()}
        except (MailboxError, ValueError, AttributeError):
            return {}

    async def audience(self, *paths: str) -> dict[str, int]:
        """How many subscribers are connected to each of these topics now, as a meter knows it. Topics that no meter
        knows are missing."""
        found: dict[str, int] = {}
        for start in range(0, len(paths), PATHS_MAX):
            query = encode(AudienceQuery(topics=paths[start : start + PATHS_MAX]))
            for meter in self._present(METER, METER_LAYER):
                try:
                    reply = await self._channel.layer(METER_LAYER).request(meter, query, timeout_s=AUDIENCE_S)
                    counts = decode(Audience, reply.data).counts
                except (RequestError, ValueError):
                    continue  # another meter may answer
                found |= {path: max(count, found.get(path, 0)) for path, count in counts.items()}
        return found

    # -- desks

    def desks(self) -> list[Member]:
        """The desks that are on the channel now: a ticket proves that they are."""
        return self._present(DESK, DESK_LAYER)

    def _present(self, name: str, layer: str) -> list[Member]:
        return [
            each for each in self._channel.members() if each.is_proven and each.name == name and layer in each.layers
        ]

    async def _ask(self, request: DeskRequest, timeout_s: float | None) -> DeskReply:
        """Ask one desk after the other. Raises `DeniedError` or `NoDeskError`."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    if (reply := await self._ask_each(request)) is not None:
                        return reply
                    await asyncio.sleep(DESK_POLL_S)
        except TimeoutError:
            raise NoDeskError(
                f"{self.name}: no desk answers within {timeout_s:g} s; start one (`broadloom topics serve`), or wait"
            ) from None

    async def _ask_each(self, request: DeskRequest) -> DeskReply | None:
        """None if no desk has answered."""
        desks = self.desks()
        random.shuffle(desks)
        data = encode(request)
        for desk in desks:
            try:
                reply = await self._channel.layer(DESK_LAYER).request(desk, data, timeout_s=ANSWER_S)
                return decode(DeskReply, reply.data)
            except RefusedError as problem:
                if problem.status not in NOT_HANDLED:
                    raise DeniedError(problem.reason) from None
            except (PeerGoneError, NoAnswerError, UnknownPeerError, BusyError):
                continue  # all requests to desks can be repeated
        return None

    async def _grants(self, action: Action, paths: list[str], plan: str, timeout_s: float | None) -> list[Grant]:
        key = base64.b64encode(self._key.public_key().public_bytes_raw()).decode()
        found: list[Grant] = []
        for start in range(0, len(paths), PATHS_MAX):
            part = tuple(paths[start : start + PATHS_MAX])
            reply = await self._ask(DeskRequest(action=action, paths=part, plan=plan, key=key), timeout_s)
            if tuple(each.path for each in reply.grants) != part:
                raise NoDeskError(f"{self.name}: a desk gave an answer to another question; update it")
            found += reply.grants
        return found

    # -- for memberships

    def _ticket(self, entry: Entry, certificate_der: bytes) -> Ticket:
        """Raises `ValueError` if the ticket is not for us, or not of the owner of the channel."""
        certificate = x509.load_der_x509_certificate(certificate_der)
        ticket = Ticket.load(encode_pem(certificate, self._key, entry.card.owner).decode())
        if ticket.name != self.subscriber:
            raise ValueError(f"the desk issued a ticket for {ticket.name}")
        return ticket

    def _topic_options(self, entry: Entry) -> dict[str, Any]:
        """How to connect to the channel of an entry: as to the directory, but at the hosts on the card."""
        options = {name: value for name, value in self._options.items() if name in SHARED_OPTIONS}
        if entry.card.card.bootstrap:
            options["bootstrap"] = entry.card.card.bootstrap
        return options

    def _on_membership(self, membership: "Membership") -> None:
        if membership.reason:
            log.info("%s: %s is %s: %s", self.name, membership.entry.path, membership.state, membership.reason)


def _path(topic: Topic) -> str:
    return topic.path


def join(name: str, ticket: str | os.PathLike[str] | Ticket, **options: Any) -> Service:
    """Use a delivery service: `async with delivery.join("delivery/news", "ann.ticket") as service`."""
    return Service(name, ticket, **options)
