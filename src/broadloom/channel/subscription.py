"""`Subscription`: an independent reader of a channel, with an inbox of its own."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import NamedTuple

from broadloom.channel.closable import AsyncClosable
from broadloom.channel.inbox import Inbox, Overflow
from broadloom.channel.reader import Reader
from broadloom.channel.topics import PatternTrie, checked_pattern
from broadloom.protocol.events import Batch, Missed
from broadloom.protocol.state.stream_tracker import PeerStream, StreamTracker
from broadloom.wire import PeerId

log = logging.getLogger("broadloom")

SUBSCRIPTIONS_MAX = 65_536
"""Subscriptions of one channel."""
PAUSE_S_MAX = 2.0
"""A full subscription with `overflow="pause"` holds up the channel for this long at most. Neighbors drop a peer that
reads nothing for 5 s, and then all its readers would miss messages."""


class SubscriptionOverflow(NamedTuple):
    """A subscription was not read in time and dropped these messages; other readers of the channel got them."""

    pattern: str | None
    author: PeerId
    first_sequence: int
    last_sequence: int


class Subscription(Reader, AsyncClosable):
    """The messages of a channel whose topic matches a pattern, or all of them. Returned by `Channel.subscribe`.

    Read it like the channel: by iterating, with `receive` or `receive_nowait`. It starts with the first message that
    arrives after `subscribe`; the first subscriptions of a program also get what arrived since `connect`. It ends with
    `close` or when the channel is left.
    """

    def __init__(
        self,
        channel: Reader,
        pattern: str | None,
        overflow: Overflow,
        messages_max: int,
        bytes_max: int,
        subscriptions: "Subscriptions",
    ) -> None:
        self.name = channel.name
        self._channel = channel
        """Kept: a subscription in use is a channel in use."""
        self._loop, self._thread, self._pid = channel._loop, channel._thread, channel._pid
        self.pattern = pattern if pattern is None else checked_pattern(pattern)
        self.dropped_count = 0
        """Messages that this subscription dropped because it was full."""
        self._overflow = overflow
        self._subscriptions = subscriptions
        self._inbox = Inbox(messages_max, bytes_max, on_full=self._on_full, on_drained=self._resume)
        self._pause_timer: asyncio.TimerHandle | None = None
        """Runs while the channel is paused for this subscription."""
        self._is_dropping = False
        """It has paused the channel for too long, and was not read since."""
        self._tracker: StreamTracker | None = None
        subscriptions.add(self)

    def position(self) -> dict[PeerId, int]:
        """Of each author, the number of the last message that was read here, or would have been if it matched. Messages
        up to there that were not read do not match, were missed, or were sent before this program subscribed."""
        self._check_loop()
        return self._tracked().position()

    def _tracked(self) -> StreamTracker:
        if self._tracker is None:
            self._tracker = StreamTracker(self, self._subscriptions.stream)
            self._subscriptions.tracked[self] = None
        return self._tracker

    def _put(self, batch: Batch) -> None:
        if self._tracker is not None:
            batch = self._tracker.admit(batch)
        if not self._inbox.is_closed and batch.data:
            self._inbox.put(batch)

    def close(self) -> None:
        """End the subscription. Unread messages can still be read."""
        self._check_loop()
        self._end()

    def _end(self) -> None:
        if not self._inbox.is_closed:
            self._inbox.close()
            self._resume()
            self._subscriptions.remove(self)

    async def aclose(self) -> None:
        """The same as `close`."""
        self.close()

    def _on_full(self) -> None:
        match self._overflow:
            case Overflow.DROP_OLDEST:
                self._drop_oldest()
            case Overflow.PAUSE if self._is_dropping and not self._was_read:
                self._drop_oldest()
            case Overflow.PAUSE if self._pause_timer is None:
                self._is_dropping = False
                self._subscriptions.pause(self)
                self._pause_timer = self._loop.call_later(PAUSE_S_MAX, self._on_pause_timeout)
            case Overflow.LEAVE:
                self._has_overflowed = True
                self._end()

    def _drop_oldest(self) -> None:
        for author, first, last in self._inbox.drop_oldest():
            self.dropped_count += last - first + 1
            self._subscriptions.report(SubscriptionOverflow(self.pattern, PeerId(author), first, last))
            if self._tracker is not None:
                self._tracker.on_lost(Missed(author, first, last))

    def _on_pause_timeout(self) -> None:
        """The other readers, and the neighbors, do not wait any longer."""
        log.warning(
            "%s: the subscription %s has held up the channel for %g s; it drops its oldest messages until it is read",
            self.name,
            "to all messages" if self.pattern is None else repr(self.pattern),
            PAUSE_S_MAX,
        )
        self._is_dropping, self._was_read = True, False
        self._resume()
        self._drop_oldest()

    def _resume(self) -> None:
        if self._pause_timer is not None:
            self._pause_timer.cancel()
            self._pause_timer = None
            self._subscriptions.resume(self)

    def _end_message(self) -> str:
        if self._has_overflowed:
            return (
                f"{self.name}: the subscription ended, because this program did not read it in time; read faster, "
                "raise messages_max or bytes_max, or choose another overflow policy"
            )
        return f"{self.name}: the subscription ended; subscribe again"


class Subscriptions:
    """All subscriptions of one channel: hands each batch to those that match."""

    def __init__(
        self,
        report: Callable[[SubscriptionOverflow], None],
        pause: Callable[[Reader], None],
        resume: Callable[[Reader], None],
        stream: PeerStream,
    ) -> None:
        self.report = report
        self.pause = pause
        """Stop reading from the sockets until `resume` is called for the same reader."""
        self.resume = resume
        self.stream = stream
        self.tracked: dict[Subscription, None] = {}
        """Those whose position is used."""
        self._open: dict[Subscription, None] = {}
        self._to_all: tuple[Subscription, ...] = ()
        """Those without a pattern."""
        self._by_pattern: PatternTrie[Subscription] = PatternTrie()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, subscription: Subscription) -> None:
        if len(self) >= SUBSCRIPTIONS_MAX:
            raise ValueError(f"{subscription.name}: at most {SUBSCRIPTIONS_MAX:,} subscriptions are open; close some")
        self._open[subscription] = None
        if subscription.pattern is None:
            self._to_all += (subscription,)
        else:
            self._by_pattern.add(subscription.pattern, subscription)

    def remove(self, subscription: Subscription) -> None:
        if subscription not in self._open:
            return
        del self._open[subscription]
        self.tracked.pop(subscription, None)
        if subscription.pattern is None:
            self._to_all = tuple(each for each in self._to_all if each is not subscription)
        else:
            self._by_pattern.remove(subscription.pattern, subscription)

    def replay(self, subscription: Subscription, batches: Iterable[Batch]) -> None:
        """Hand earlier batches to this subscription only."""
        alone = Subscriptions(self.report, self.pause, self.resume, self.stream)
        alone.add(subscription)
        for batch in batches:
            alone.put(batch)

    def put(self, batch: Batch) -> None:
        for subscription in self._to_all:
            subscription._put(batch)
        if batch.envelopes is None or len(self._to_all) == len(self._open):
            return
        start = 0
        for topic, run in groupby(envelope.headers.topic for envelope in batch.envelopes):
            stop = start + sum(1 for _ in run)
            readers = self._by_pattern.readers(topic) if topic is not None else ()
            if readers:
                part = batch if stop - start == len(batch) else batch.part(start, stop)
                for subscription in readers:
                    subscription._put(part)
            start = stop

    def on_missed(self, missed: Missed) -> None:
        """No subscription will get these messages."""
        for subscription in self.tracked:
            if subscription._tracker is not None:
                subscription._tracker.on_lost(missed)

    def close(self) -> None:
        """The channel was left: unread messages can still be read."""
        for subscription in tuple(self._open):
            subscription._end()
