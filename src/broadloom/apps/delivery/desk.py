"""`Desk`: creates topics, admits subscribers and producers, issues and withdraws their tickets.

All that a desk knows is in mailboxes of the directory, under the owner name `desk`. So several desks of a service can
run, each of them suffices, and a new one knows what the others have done.
"""

import asyncio
import base64
import json
import logging
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding

import broadloom
from broadloom.apps.delivery.directory import MAILBOX_PREFIX, PRICES_MAILBOX, Directory
from broadloom.apps.delivery.entitlements import DESK, METER, Condition, Entitlements
from broadloom.apps.delivery.entry import Entry, Offer, check_path, decode_entry
from broadloom.apps.delivery.messages import (
    DESK_LAYER,
    Action,
    DeskReply,
    DeskRequest,
    Grant,
    decode,
    encode,
)
from broadloom.apps.delivery.service import SHARED_OPTIONS
from broadloom.apps.delivery.service_keys import ServiceKeys
from broadloom.apps.delivery.subscribers import Account, SubscriberRecord, Subscription, decode_record
from broadloom.channel import Channel
from broadloom.channel.closable import AsyncClosable
from broadloom.channel.direct_request import DirectRequest
from broadloom.errors import BroadloomError, RefusedError
from broadloom.mailboxes import Change, ChangeKind, Mailbox, Mailboxes, Overruled
from broadloom.protocol import ChannelName
from broadloom.protocol.identity import Role
from broadloom.protocol.owner.card import ChannelCard, SecurityLevel
from broadloom.security import Authority, RevocationList, SignedCard, new_revocation_list

log = logging.getLogger("broadloom")

TICKET_S = 86_400.0
"""Longest lifetime of a ticket. Revocation is fast, so tickets can outlast a day without desks."""
TICKET_S_MIN = 1.0
OWN_TICKET = timedelta(days=365)
REVOKED_SLACK_S = 600.0
"""How much longer than its ticket a revocation is remembered: clocks differ."""
CONCURRENCY = 64
SUBSCRIBERS_MAX = 1_000
"""Subscribers of an entry in one answer."""
SUBSCRIBERS_PREFIX, REVOKED_PREFIX = "subscribers/", "revoked/"


class Desk(AsyncClosable):
    """Use it with `async with`. `name` is the channel of the directory, `authority` that of its owner, with the private
    key.

    - `store`: an SQLite file, which makes the desk a keeper: the directory then outlives all its programs.
    - `qualifications`: the conditions that entries can ask for, by name. `creators`, `operators`: who may create
      topics, and who may close and withdraw what others created. Each is a collection of names, or a function.
    - `prices`: what plans cost, in words for readers. They are not a condition: the billing file decides.
    - `ticket_s`: the longest lifetime of a ticket.
    - `options`: of `broadloom.connect`, such as `bootstrap`.
    """

    def __init__(
        self,
        name: str,
        authority: Authority,
        *,
        store: str | os.PathLike[str] | None = None,
        qualifications: Mapping[str, Condition] | None = None,
        creators: Condition = (),
        operators: Condition = (),
        prices: Mapping[str, str] | None = None,
        ticket_s: float = TICKET_S,
        now: Callable[[], float] = time.time,
        **options: Any,
    ) -> None:
        if not ticket_s >= TICKET_S_MIN:
            raise ValueError(f"ticket_s={ticket_s!r}: must be at least {TICKET_S_MIN:g} seconds")
        self.name = name
        self.directory = Directory()
        self._authority = authority
        self._keys = ServiceKeys(authority, name)
        self._entitlements = Entitlements(qualifications=qualifications, creators=creators, operators=operators)
        self._prices = dict(prices or {})
        self._slot_s = ticket_s / 2
        self._store = store
        self._options = options
        self._now = now
        self._subscribers: dict[str, SubscriberRecord] = {}
        """By the id that names the mailbox."""
        self._revoked: dict[str, dict[str, tuple[str, ...]]] = defaultdict(dict)
        """By channel and mailbox: the serials of revoked tickets."""
        self._own_writes: set[str] = set()
        self._locks: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._mailboxes: dict[str, Mailbox] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def channel(self) -> Channel:
        return self._channel

    async def __aenter__(self) -> Self:
        ticket = self._authority.issue_ticket(DESK, Role.PRODUCER, datetime.now(UTC) + OWN_TICKET)
        self._channel = await broadloom.connect(self.name, ticket=ticket, **self._options)
        try:
            self._boxes = Mailboxes(self._channel, store=self._store)
            await self._boxes.wait_until_synced()
            self._boxes.on_event(self._on_mailbox_event)
            watch = await self._boxes.watch("**", of=DESK)
            while (change := watch.receive_nowait()) is not None:
                self._on_change(change)
            self._start(self._follow(watch))
            if self._prices:
                await self._put(PRICES_MAILBOX, json.dumps(self._prices, ensure_ascii=False).encode())
            layer = self._channel.layer(DESK_LAYER, on_batch=lambda _batch: None)
            layer.on_request(self._on_request, concurrency=CONCURRENCY)
        except BaseException:
            self._channel.abort()
            raise
        return self

    async def aclose(self) -> None:
        """Stop answering, and leave."""
        if self._is_closed:
            return
        self._is_closed = True
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._boxes.aclose()
        await self._channel.leave()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.warning("%s: %s", self.name, problem)

    # -- what the mailboxes say

    async def _follow(self, watch: Any) -> None:
        async for change in watch:
            self._on_change(change)

    def _on_change(self, change: Change) -> None:
        name, is_gone = change.value.name, change.kind is ChangeKind.GONE
        try:
            if name.startswith(MAILBOX_PREFIX):
                if is_gone:
                    self.directory.remove(name.removeprefix(MAILBOX_PREFIX))
                else:
                    self.directory.put(decode_entry(change.value.data))
            elif name.startswith(SUBSCRIBERS_PREFIX) and not is_gone:
                self._merge_record(name, change.value.data)
            elif name.startswith(REVOKED_PREFIX):
                self._on_revoked(name, change, is_gone)
        except ValueError as problem:
            log.warning("%s: the mailbox %s is ignored: %s", self.name, name, problem)

    def _merge_record(self, name: str, data: bytes) -> SubscriberRecord:
        subscriber = name.removeprefix(SUBSCRIBERS_PREFIX)
        found = decode_record(self._keys.decrypt(data, subscriber))
        known = self._subscribers.get(subscriber)
        merged = self._subscribers[subscriber] = found if known is None else found.merged(known)
        return merged

    def _on_mailbox_event(self, event: object) -> None:
        """Another desk has written the same record at the same time: both changes count."""
        if isinstance(event, Overruled) and event.name.startswith(SUBSCRIBERS_PREFIX) and event.value is not None:
            found = decode_record(self._keys.decrypt(event.value.data, event.name.removeprefix(SUBSCRIBERS_PREFIX)))
            if self._merge_record(event.name, event.value.data) != found:
                self._start(self._write_record(self._subscribers[event.name.removeprefix(SUBSCRIBERS_PREFIX)]))

    def _on_revoked(self, name: str, change: Change, is_gone: bool) -> None:
        values = json.loads(change.value.data)
        revoked = self._revoked[values["channel"]]
        if is_gone:
            revoked.pop(name, None)
        elif name not in revoked:
            revoked[name] = tuple(values["serials"])
            if change.kind is ChangeKind.PUT and name not in self._own_writes:
                # The desk that wrote it may be in another part of the network than members of the topic.
                self._start(self._publish_revoked(values["path"]))

    # -- requests

    async def _on_request(self, request: DirectRequest) -> bytes:
        identity = request.identity
        if identity is None or not identity.name:
            raise RefusedError("a desk answers holders of tickets only")
        try:
            asked = decode(DeskRequest, request.data)
            return encode(await self._answer(identity.name, asked))
        except ValueError as problem:
            raise RefusedError(str(problem)) from None
        except BroadloomError as problem:
            if isinstance(problem, RefusedError):
                raise
            raise RefusedError(str(problem)) from None

    async def _answer(self, name: str, asked: DeskRequest) -> DeskReply:
        match asked.action:
            case Action.CREATE:
                entry = await self.create(Offer.parse(asked.offer), creator=name)
                return DeskReply(grants=(Grant(path=entry.path),))
            case Action.CLOSE:
                for entry in self._administered(name, asked.paths):
                    await self.close_topic(entry.path, asked.text)
            case Action.WITHDRAW:
                for entry in self._administered(name, asked.paths):
                    await self.withdraw(asked.name, entry.path)
            case Action.REINSTATE:
                for entry in self._administered(name, asked.paths):
                    await self.reinstate(asked.name, entry.path)
            case Action.ACCOUNT:
                return DeskReply(account=asdict(self.account(name)))
            case Action.SUBSCRIBERS:
                (entry,) = self._administered(name, asked.paths[:1])
                found = self.subscribers_of(entry.path)
                return DeskReply(subscribers={each: asdict(found[each]) for each in sorted(found)[:SUBSCRIBERS_MAX]})
            case Action.END:
                for path in asked.paths:
                    await self._change(name, path, lambda known: known.ended(self._now_ms()))
            case _:
                return DeskReply(grants=tuple([await self._grant(name, asked, path) for path in asked.paths]))
        return DeskReply(grants=tuple(Grant(path=path) for path in asked.paths))

    def _administered(self, name: str, paths: tuple[str, ...]) -> list[Entry]:
        entries = [self._entry(path) for path in paths]
        for entry in entries:
            if (refusal := self._entitlements.refusal_to_administer(name, entry)) is not None:
                raise RefusedError(refusal)
        return entries

    def _entry(self, path: str) -> Entry:
        entry = self.directory.entry(path)
        if entry is None:
            raise RefusedError(f"there is no entry {path} in the directory")
        return entry

    async def _grant(self, name: str, asked: DeskRequest, path: str) -> Grant:
        entry = self.directory.entry(path)
        if entry is None:
            return Grant(path=path, refusal=f"there is no entry {path} in the directory")
        known = self._record(name).get(path)
        role = Role.CONSUMER
        match asked.action:
            case Action.SUBSCRIBE:
                refusal = self._entitlements.refusal_to_subscribe(name, entry, asked.plan, known)
            case Action.PRODUCE:
                refusal, role = self._entitlements.refusal_to_produce(name, entry, known), Role.PRODUCER
            case _:
                refusal = None if name == METER else f"only the ticket {METER!r} may meter; ask the operator"
        if refusal is not None:
            return Grant(path=path, refusal=refusal)
        level = entry.offer.level
        if level is not SecurityLevel.TICKETS:
            return Grant(path=path, key="" if level is SecurityLevel.PLAIN else self._keys.channel_key(entry.channel))
        if asked.action is Action.SUBSCRIBE and entry.offer.plans:
            known = await self._change(name, path, lambda known: known.subscribed(asked.plan, self._now_ms()))
        slot = int(self._now() // self._slot_s)
        certificate = self._keys.authority(entry.channel).certify(
            Ed25519PublicKey.from_public_bytes(asked.public_key),
            name,
            role,
            datetime.fromtimestamp((slot + 2) * self._slot_s, UTC),
            serial=self._keys.serial(entry.channel, name, slot, known.generation),
        )
        revoked = self._revocation_list(entry.channel)
        return Grant(
            path=path,
            ticket=base64.b64encode(certificate.public_bytes(Encoding.DER)).decode(),
            revoked=base64.b64encode(revoked.document).decode() if revoked is not None else "",
        )

    # -- entries

    async def create(self, offer: Offer, *, creator: str = DESK) -> Entry:
        """Create an entry with a channel of its own. Raises `RefusedError` or `ValueError`."""
        if (refusal := self._entitlements.refusal_to_create(creator, offer.path)) is not None:
            raise RefusedError(refusal)
        async with self._locks["create", ""]:
            before = self.directory.entry(offer.path)
            taken = [path for path in offer.topics if self.directory.topic(path) is not None]
            if taken or (before is not None and not before.is_closed):
                raise RefusedError(f"the topic {taken[0] if taken else offer.path} exists already")
            generation = before.generation + 1 if before is not None else 0
            channel = self._keys.channel_name(check_path(offer.path), generation)
            bootstrap = tuple(self._options.get("bootstrap", ()))
            card = ChannelCard(channel, level=offer.level, bootstrap=bootstrap)
            entry = Entry.of(offer, SignedCard.sign(self._keys.authority(channel), card), creator, generation)
            await self._put(MAILBOX_PREFIX + offer.path, entry.encode())
            self.directory.put(entry)
        return entry

    async def close_topic(self, path: str, text: str = "") -> None:
        """Close an entry: its members leave, and nobody is admitted any more."""
        entry = self._entry(path)
        card = SignedCard.sign(
            self._keys.authority(entry.channel), entry.card.card.closed(text or f"{path} was closed"), after=entry.card
        )
        closed = Entry.of(entry.offer, card, entry.creator, entry.generation)
        await self._put(MAILBOX_PREFIX + path, closed.encode())
        self.directory.put(closed)
        async with self._joined(entry) as channel:
            await channel.publish(card)

    # -- subscribers

    async def withdraw(self, name: str, path: str) -> None:
        """End the subscription of `name`, or its right to produce. All members disconnect it within seconds, and no
        desk admits it again until it is reinstated."""
        entry = self._entry(path)
        generation = self._record(name).get(path).generation
        await self._change(name, path, lambda known: known.withdrawn(self._now_ms()))
        slot = int(self._now() // self._slot_s)
        # A desk whose clock is a little ahead may have issued one for the next slot.
        serials = [
            f"{self._keys.serial(entry.channel, name, each, generation):016x}" for each in (slot - 1, slot, slot + 1)
        ]
        mailbox = f"{REVOKED_PREFIX}{self._keys.subscriber_id(name)}/{generation}/{entry.channel.partition('/')[2]}"
        values = {"channel": entry.channel, "path": path, "serials": serials}
        self._own_writes.add(mailbox)
        await self._put(mailbox, json.dumps(values).encode(), ttl_s=3 * self._slot_s + REVOKED_SLACK_S)
        self._revoked[entry.channel][mailbox] = tuple(serials)
        await self._publish_revoked(path)

    async def reinstate(self, name: str, path: str) -> None:
        """Allow a withdrawn subscriber to subscribe again."""
        self._entry(path)
        await self._change(name, path, lambda known: known.reinstated(self._now_ms()))

    def subscribers(self) -> list[SubscriberRecord]:
        """What this desk knows of all subscribers, sorted by name."""
        return sorted(self._subscribers.values(), key=lambda each: each.name)

    def subscribers_of(self, path: str) -> dict[str, Subscription]:
        """The subscriptions of an entry by name, also those that have ended."""
        known = self._subscribers.values()
        return {each.name: each.subscriptions[path] for each in known if path in each.subscriptions}

    def account(self, name: str) -> Account:
        rights = self._entitlements
        return Account(name, self._record(name).subscriptions, rights.is_creator(name), rights.is_operator(name))

    def listing_of(self, path: str) -> dict[str, str]:
        """The channel and the topic of an entry, as the billing file has them; a pattern for a category."""
        entry = self.directory.entry(path)
        if entry is None:
            return {"topic": path}
        if path not in entry.offer.topics:
            return {"topic": f"{path}/**"}
        return {"channel": ChannelName.parse(entry.channel).id.hex()[:16], "topic": path}

    def _record(self, name: str) -> SubscriberRecord:
        return self._subscribers.get(self._keys.subscriber_id(name), SubscriberRecord(name))

    async def _change(self, name: str, path: str, change: Callable[[Subscription], Subscription]) -> Subscription:
        """Change a subscription, and return when it is stored."""
        async with self._locks["subscriber", name]:
            record = self._record(name)
            changed = change(record.get(path))
            if changed != record.get(path):
                record = record.with_subscription(path, changed)
                await self._write_record(record)
            return changed

    async def _write_record(self, record: SubscriberRecord) -> None:
        subscriber = self._keys.subscriber_id(record.name)
        self._subscribers[subscriber] = record
        await self._put(SUBSCRIBERS_PREFIX + subscriber, self._keys.encrypt(record.encode(), subscriber))

    def _revocation_list(self, channel: str) -> RevocationList | None:
        serials = [each for revoked in self._revoked.get(channel, {}).values() for each in revoked]
        return new_revocation_list(self._keys.authority(channel), serials) if serials else None

    async def _publish_revoked(self, path: str) -> None:
        entry = self._entry(path)
        async with self._joined(entry) as channel:
            revoked = self._revocation_list(entry.channel)
            if revoked is not None:
                await channel.publish(revoked)

    # -- mailboxes and topic channels

    async def _put(self, name: str, data: bytes, *, ttl_s: float | None = None) -> None:
        async with self._locks["mailbox", name]:
            mailbox = self._mailboxes.get(name)
            if mailbox is None:
                mailbox = await self._boxes.bind(name, fetch=True, held=bool(self._boxes.keepers))
                self._mailboxes[name] = mailbox
            await mailbox.put(data, ttl_s=ttl_s)

    @asynccontextmanager
    async def _joined(self, entry: Entry) -> AsyncIterator[Channel]:
        """The channel of an entry, for as long as it takes to publish something."""
        options = {name: value for name, value in self._options.items() if name in SHARED_OPTIONS}
        level = entry.offer.level
        if level is SecurityLevel.TICKETS:
            authority = self._keys.authority(entry.channel)
            options["ticket"] = authority.issue_ticket(DESK, Role.PRODUCER, datetime.now(UTC) + OWN_TICKET)
        elif level is SecurityLevel.PLAIN:
            options["tls"] = False
        else:
            options.update(key=self._keys.channel_key(entry.channel), signed=level is SecurityLevel.SIGNED)
        if level is not SecurityLevel.TICKETS:
            options["card"] = entry.card
        async with broadloom.connect(entry.channel, **options) as channel:
            yield channel

    def _now_ms(self) -> int:
        return int(self._now() * 1000)
