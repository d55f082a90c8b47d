"""The sending half of a channel: small messages, large ones in fragments, files.

Flow control happens here, before anything is sent: an author that is too fast waits. The check is made once per few
kilobytes, not per message, so a small message costs little more than its place in the current bundle.
"""

import asyncio
import json
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, overload

from broadloom.channel.arguments import check_callback, check_positive_timeout, receipt_count
from broadloom.channel.filtered_sender import FilteredSender
from broadloom.channel.fragments import FRAGMENT_BYTES, fragment
from broadloom.channel.loop_bound import running_loop
from broadloom.channel.outgoing import Outgoing, OutgoingFilter, pack_broadcast
from broadloom.errors import BusyError, MessageTooLargeError, NotPermittedError, QuotaExceededError
from broadloom.protocol import PeerState
from broadloom.protocol.events import payload_bytes
from broadloom.protocol.identity import Role
from broadloom.protocol.owner.pacer import Pacer
from broadloom.protocol.receipts.receipts import OPEN_MAX, OpenReceipt, Receipt
from broadloom.transport import TcpNode
from broadloom.wire.broadcast_frame import PRIORITY_MAX, Priority
from broadloom.wire.file_payload import encode_file
from broadloom.wire.identity_messages import IDENTITY_KIND, advert, identification
from broadloom.wire.message_headers import checked_headers, encode_headers, with_headers
from broadloom.wire.payload_kind import CONTENT_MASK, HAS_HEADERS, WANTS_RECEIPT, PayloadKind, layer_kind

GRANTED_BYTES = 4 << 10
"""Amount that may be sent before flow control is consulted again."""
MESSAGE_COST_BYTES = 64
"""Cost of a message in addition to its data."""
YIELD_BYTES = 128 << 10
"""`broadcast` yields to the event loop after this amount, so that a busy author does not starve its own process."""
TTL_MS_MAX = 0xFFFFFFFF
RECEIPT_TIMEOUT_S = 10.0
ROSTER_WAIT_S_MAX = 1.0
"""A message with a receipt waits this long for a roster that is not complete."""
QUOTA_PAUSE_S_MAX = 1.0
"""An author that waits for its quota looks again after this time: the card may have changed."""
TEXT_REMEDY = "broadcast_text or broadcast_json"
CONNECTED: Final = PeerState.CONNECTED
DATA: Final[int] = PayloadKind.DATA
NORMAL: Final = Priority.NORMAL
"""Constants here, because looking up a member of an enum takes longer than the rest of a check."""
OnSent = Callable[[int], None]
"""Called with the bytes of a large message that were sent so far."""


class Sender(FilteredSender):
    """The sending side of `Channel`."""

    def __init__(self, node: TcpNode) -> None:
        self._node = node
        self._bind_loop()
        self._granted = 0
        """Bytes that may be sent before flow control is consulted again. A program that may not send, or whose messages
        pass a filter, never has any."""
        self._sent_since_yield = 0
        self._fragmented_count = 0
        self._pacer: Pacer | None = None
        """Keeps this member to its quota; None without one."""

    def _use_card(self) -> None:
        """Without a quota, a message costs nothing more: with one, nothing is granted in advance. What was granted
        before is checked again."""
        self._pacer = self._node.peer.owner.pacer
        self._granted = 0

    @overload
    async def broadcast(
        self,
        data: bytes,
        *,
        topic: str | None = None,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = Priority.NORMAL,
        ttl_s: float | None = None,
    ) -> int: ...

    @overload
    async def broadcast(
        self,
        data: bytes,
        *,
        topic: str | None = None,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = Priority.NORMAL,
        ttl_s: float | None = None,
        receipt: Literal["all"] | int,
        timeout_s: float = RECEIPT_TIMEOUT_S,
    ) -> Receipt: ...

    async def broadcast(
        self,
        data: bytes,
        *,
        topic: str | None = None,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = Priority.NORMAL,
        ttl_s: float | None = None,
        receipt: Literal["all"] | int | None = None,
        timeout_s: float = RECEIPT_TIMEOUT_S,
    ) -> int | Receipt:
        """Send a message to all members; returns its sequence number. Waits while links or receivers are congested.

        - `topic`: levels as in `sports/nfl`, for subscriptions. With a topic, a content type or headers the message
          also carries the time of sending.
        - `priority`: a receiver that cannot keep up skips messages of lower priority first.
        - `ttl_s`: receivers that have not got the message by then get a `Missed` event instead.
        - `receipt`: wait until all members have the message, or this many, and return a `Receipt` instead; after
          `timeout_s` from the moment it is sent, whatever it says by then (`receipt.is_complete`).
        """
        if not isinstance(data, bytes):
            data = payload_bytes(data, TEXT_REMEDY)
        kind = DATA
        if topic is not None or content_type is not None or headers is not None:
            data, kind = self._with_headers(data, topic, content_type, headers), kind | HAS_HEADERS
        if receipt is not None:
            return await self._broadcast_with_receipt(data, kind, priority, ttl_s, receipt, timeout_s)
        if priority is NORMAL and ttl_s is None:  # the usual case, without another call: `_send` has all the checks
            cost, peer = len(data) + MESSAGE_COST_BYTES, self._node.peer
            if cost <= self._granted and peer.state is CONNECTED and running_loop() is self._loop:
                self._granted -= cost
                return peer.broadcaster.broadcast(data, kind, NORMAL, 0)
        return await self._broadcast_kind(data, kind, priority, ttl_s)

    async def _broadcast_with_receipt(
        self, data: bytes, kind: int, priority: int, ttl_s: float | None, receipt: object, timeout_s: float
    ) -> Receipt:
        self._check_loop()
        count = receipt_count(receipt)
        check_positive_timeout(timeout_s)
        peer = self._node.peer
        if peer.receipts.open_count >= OPEN_MAX:
            raise BusyError(f"{OPEN_MAX:,} receipts are waited for; wait for some of them")
        if peer.state is CONNECTED:
            with suppress(TimeoutError):  # members that we do not know of yet would not be counted
                await self._wait_until_roster_is_complete(min(timeout_s, ROSTER_WAIT_S_MAX))
        waiting: OpenReceipt | None = None

        def on_sent(_done_bytes: int) -> None:
            """The members that are present now count."""
            nonlocal waiting
            if waiting is None:
                waiting = peer.receipts.prepare(count)

        sequence = await self._broadcast_kind(data, kind | WANTS_RECEIPT, priority, ttl_s, on_sent)
        on_sent(len(data))  # a message without fragments
        assert waiting is not None
        done: asyncio.Future[Receipt] = self._loop.create_future()
        peer.receipts.open(waiting, sequence, timeout_s, _set_result(done))
        try:
            return await done
        finally:
            peer.receipts.close(waiting)

    @abstractmethod
    async def _wait_until_roster_is_complete(self, timeout_s: float | None) -> None: ...

    async def _broadcast_kind(
        self, data: bytes, kind: int, priority: int, ttl_s: float | None, on_sent: OnSent | None = None
    ) -> int:
        """All broadcasts but files and those of `broadcast_nowait` come here. `on_sent` is called after each
        fragment of a large message."""
        if self._filter is not None:
            data, kind, priority, ttl_s = await self._filtered(data, kind, priority, ttl_s)
        return await self._broadcast_unfiltered(data, kind, priority, ttl_s, on_sent)

    async def _broadcast_unfiltered(
        self, data: bytes, kind: int, priority: int, ttl_s: float | None, on_sent: OnSent | None = None
    ) -> int:
        """For what has passed the filter, and for messages of a layer that contain nothing of the application."""
        cost = len(data) + MESSAGE_COST_BYTES
        if cost > self._granted:
            if len(data) > FRAGMENT_BYTES:
                return await self._broadcast_large(data, kind, priority, ttl_s, on_sent)
            if self._pacer is not None:
                self._check_loop()
                await self._wait_for_window(cost)
                await self._wait_for_quota(len(data))
                return self._send(data, kind, priority, 0 if ttl_s is None else _milliseconds(ttl_s))
            await self._reserve(cost)
        self._granted -= cost
        return self._send(data, kind, priority, 0 if ttl_s is None else _milliseconds(ttl_s))

    # -- the filter

    def _use_filter(self, outgoing_filter: OutgoingFilter | None) -> None:
        self._filter = outgoing_filter
        self._granted = 0  # what was granted before would not pass it

    async def _broadcast_outgoing(self, out: Outgoing) -> int:
        """Send what a rule forwards, or what was held and is released: it passes the filter of this channel."""
        own = self._origin()
        out = replace(out, channel=own.channel, sender=own.sender, role=own.role)
        if self._filter is not None:
            out = await self._filter.apply(out, self._as_channel())
        data, kind, priority, ttl_s = pack_broadcast(out, layer_kind(out.layer) if out.layer else 0)
        if kind & CONTENT_MASK == PayloadKind.FILE:
            return await self._broadcast_large(data, kind, priority, ttl_s)
        return await self._broadcast_unfiltered(data, kind, priority, ttl_s)

    def broadcast_nowait(
        self,
        data: bytes,
        *,
        topic: str | None = None,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = Priority.NORMAL,
        ttl_s: float | None = None,
    ) -> int:
        """As `broadcast`, without flow control: for callbacks, and for programs that send little."""
        if not isinstance(data, bytes):
            data = payload_bytes(data, TEXT_REMEDY)
        kind = DATA
        if topic is not None or content_type is not None or headers is not None:
            data, kind = self._with_headers(data, topic, content_type, headers), kind | HAS_HEADERS
        if self._filter is not None:
            data, kind, priority, ttl_s = self._filtered_nowait(data, kind, priority, ttl_s)
        ttl_ms = 0 if ttl_s is None else _milliseconds(ttl_s)
        if self._pacer is not None:
            self._take_quota_nowait(len(data))
        if len(data) <= FRAGMENT_BYTES:
            return self._send(data, kind, priority, ttl_ms)
        self._check_size(len(data))
        at_once_max = self._node.settings.retention_bytes_max // 2
        if len(data) > at_once_max:
            raise MessageTooLargeError(
                f"message of {len(data):,} bytes: broadcast_nowait sends at most {at_once_max:,}; use broadcast"
            )
        self._fragmented_count += 1
        sequence = 0
        for part in fragment(self._fragmented_count, data, kind):
            sequence = self._send(part, PayloadKind.FRAGMENT, priority, ttl_ms)
        return sequence

    @staticmethod
    def _with_headers(
        data: bytes, topic: str | None, content_type: str | None, headers: Mapping[str, str] | None
    ) -> bytes:
        block = encode_headers(*checked_headers(topic, content_type, headers))
        return with_headers(block, time.time_ns() // 1_000_000, data)

    async def broadcast_text(
        self,
        text: str,
        *,
        topic: str | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = Priority.NORMAL,
        ttl_s: float | None = None,
    ) -> int:
        """Send text as UTF-8; receivers read `message.text`."""
        if not isinstance(text, str):
            raise TypeError(f"broadcast_text takes text, not {type(text).__name__}; use broadcast")
        return await self.broadcast(text.encode(), topic=topic, headers=headers, priority=priority, ttl_s=ttl_s)

    async def broadcast_json(
        self,
        value: Any,
        *,
        topic: str | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = Priority.NORMAL,
        ttl_s: float | None = None,
    ) -> int:
        """Send a value as JSON; receivers read `message.json()`."""
        data = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
        return await self.broadcast(data, topic=topic, headers=headers, priority=priority, ttl_s=ttl_s)

    async def broadcast_file(
        self,
        path: str | os.PathLike[str],
        *,
        topic: str | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = Priority.NORMAL,
        ttl_s: float | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Send a file with its name and a hash, which receivers check; they find it in `message.file`.

        `on_progress` is called with the bytes sent so far and the total.
        """
        self._check_loop()
        if on_progress is not None:
            check_callback(on_progress)
        path = Path(path)
        self._check_size(path.stat().st_size)  # before it is read
        name = os.fsencode(path.name).decode(errors="replace")  # file names are bytes, not necessarily UTF-8
        data = await asyncio.to_thread(lambda: encode_file(name, path.read_bytes()))
        kind: int = PayloadKind.FILE
        if topic is not None or headers is not None:
            data, kind = self._with_headers(data, topic, None, headers), kind | HAS_HEADERS
        if self._filter is not None:
            data, kind, priority, ttl_s = await self._filtered(data, kind, priority, ttl_s)
        on_sent = (lambda done: on_progress(done, len(data))) if on_progress is not None else None
        return await self._broadcast_large(data, kind, priority, ttl_s, on_sent)

    async def identify(self, attributes: Mapping[str, str] | None = None) -> int:
        """Announce this program to recorders, which write it to their tapes: with the name on its ticket, else the one
        given to `connect`. Other programs get no message. Returns the sequence number, as `broadcast`.

        - `attributes`: names and values for the tape, such as a customer number.
        """
        return await self._broadcast_kind(
            identification(self._node.name, attributes), IDENTITY_KIND, Priority.NORMAL, None
        )

    async def advert(self, name: str, *, topic: str | None = None) -> int:
        """Announce to recorders that the ad `name` is shown at every member. The ad itself is an ordinary message.
        Returns the sequence number, as `broadcast`."""
        return await self._broadcast_kind(advert(name, topic), IDENTITY_KIND, Priority.NORMAL, None)

    async def _broadcast_large(
        self,
        data: bytes,
        kind: int,
        priority: int,
        ttl_s: float | None,
        on_sent: OnSent | None = None,
    ) -> int:
        """Send fragments; other messages may be sent in between."""
        self._check_loop()
        self._check_size(len(data))
        self._check_quota_size(len(data))
        ttl_ms = 0 if ttl_s is None else _milliseconds(ttl_s)
        self._fragmented_count += 1
        sequence = done = 0
        for part in fragment(self._fragmented_count, data, kind & ~WANTS_RECEIPT):
            await self._wait_for_window(len(part))
            if self._pacer is not None:
                await self._wait_for_quota(len(part), is_fragment=True)
            done = min(done + FRAGMENT_BYTES, len(data))
            # The last fragment is where the message is delivered or missed, so the receipt is for its number.
            flag = kind & WANTS_RECEIPT if done == len(data) else 0
            sequence = self._send(part, PayloadKind.FRAGMENT | flag, priority, ttl_ms)
            if on_sent is not None:
                on_sent(done)
            if done < len(data):  # at the end there is no pause between the number and the return
                await asyncio.sleep(0)
        return sequence

    async def _reserve(self, cost: int) -> None:
        self._check_loop()  # before waiting for objects of the other loop
        self._check_access()
        wanted = max(cost, GRANTED_BYTES) if self._filter is None else cost
        await self._wait_for_window(wanted)
        self._granted = wanted if self._filter is None else 0
        self._sent_since_yield += wanted
        if self._sent_since_yield > YIELD_BYTES:
            self._sent_since_yield = 0
            await asyncio.sleep(0)

    async def _wait_for_window(self, size: int) -> None:
        flow = self._node.flow
        if flow.must_wait:
            await flow.drain()
        flow.rate_limiter.consume(size)

    async def _wait_for_quota(self, size: int, *, is_fragment: bool = False) -> None:
        """Returns when the message can be sent, at once, without another wait."""
        if not is_fragment:
            self._check_quota_size(size)
        while (pacer := self._pacer) is not None and (delay_s := pacer.delay_s(size)) > 0:
            if delay_s == float("inf"):
                raise MessageTooLargeError(
                    f"{size:,} bytes at once are more than the quota on the channel's card ever allows"
                )
            if self._node.peer.state is not PeerState.CONNECTED:
                raise self._end_error()
            await asyncio.sleep(min(delay_s, QUOTA_PAUSE_S_MAX))
        if pacer is not None:
            pacer.take(size)

    def _take_quota_nowait(self, size: int) -> None:
        self._check_loop()
        self._check_quota_size(size)
        pacer = self._pacer
        assert pacer is not None
        if size > FRAGMENT_BYTES or pacer.delay_s(size) > 0:
            raise QuotaExceededError(
                "this message now would exceed the quota on the channel's card; use broadcast, which waits"
            )
        pacer.take(size)

    def _check_quota_size(self, size: int) -> None:
        limit = self._pacer.quota.message_bytes_max if self._pacer is not None else None
        if limit is not None and size > limit:
            raise MessageTooLargeError(f"message of {size:,} bytes: the channel's card allows at most {limit:,}")

    def _send(self, data: bytes, kind: int, priority: int, ttl_ms: int) -> int:
        self._check_loop()
        peer = self._node.peer
        if peer.state is not CONNECTED:
            raise self._end_error()
        self._check_access()
        if not isinstance(priority, int):
            raise TypeError(f"priority must be a Priority or a number from 0 to {PRIORITY_MAX}, not {priority!r}")
        if not 0 <= priority <= PRIORITY_MAX:
            raise ValueError(f"priority={priority}: must be from 0 to {PRIORITY_MAX}")
        return peer.broadcaster.broadcast(data, kind, priority, ttl_ms)

    def _check_access(self) -> None:
        if self._node.peer.lost_access is not None:
            raise self._end_error()
        credentials = self._node.credentials
        if credentials is not None and credentials.identity.role is not Role.PRODUCER:
            raise NotPermittedError(
                "the ticket has the role consumer, which may only receive; ask the channel's owner for another"
            )

    def _check_size(self, size: int) -> None:
        limit = self._node.settings.message_bytes_max
        if size > limit:
            raise MessageTooLargeError(
                f"message of {size:,} bytes: at most {limit:,} are allowed (ChannelSettings.message_bytes_max)"
            )


def _set_result(done: "asyncio.Future[Receipt]") -> Callable[[Receipt], None]:
    return lambda receipt: done.set_result(receipt) if not done.done() else None


def _milliseconds(ttl_s: float) -> int:
    if not isinstance(ttl_s, int | float):
        raise TypeError(f"ttl_s must be a number of seconds or None, not {type(ttl_s).__name__}")
    if not ttl_s > 0:
        raise ValueError(f"ttl_s={ttl_s}: must be greater than 0; None means no expiry")
    return max(1, round(min(ttl_s * 1000, TTL_MS_MAX)))
