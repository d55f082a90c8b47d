"""The receiving half of a channel: where a delivered message goes.

Messages of a layer go to that layer. Those of the application go to every subscription that matches, and to the
callback of the channel or else into its inbox.
"""

import logging
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from broadloom.channel.arguments import CALLBACK_ERRORS, check_callback, check_inbox
from broadloom.channel.envelopes import open_envelopes
from broadloom.channel.inbox import Inbox, Overflow
from broadloom.channel.layer import Layers
from broadloom.channel.loop_bound import weak
from broadloom.channel.reader import Reader
from broadloom.channel.subscription import Subscription, SubscriptionOverflow, Subscriptions
from broadloom.protocol.events import Batch, Message, Missed
from broadloom.protocol.state.stream_tracker import PeerStream
from broadloom.security.sealing import SealingPrivateKey
from broadloom.wire import WireError
from broadloom.wire.payload_kind import CONTENT_MASK, FLAGS_MASK, LAYER_SHIFT

log = logging.getLogger("broadloom")

UNREAD_RING_BYTES = 1 << 20
"""The inbox of a program that has never read it and has other readers keeps only this much, and reports no loss."""


class ChannelReader(Reader):
    """The receiving side of `Channel`."""

    _private_keys: tuple[SealingPrivateKey, ...] = ()
    """For messages that rules of other members encrypt."""

    def __init__(self, overflow: Overflow, inbox_messages_max: int, inbox_bytes_max: int, stream: PeerStream) -> None:
        self._overflow_policy = overflow
        self._inbox = Inbox(
            inbox_messages_max,
            inbox_bytes_max,
            on_full=weak(self._on_inbox_full),
            on_drained=weak(self._on_inbox_drained),
        )
        self._batch_callback: Callable[[Batch], None] | None = None
        self._is_calling_back = False
        """A callback of `on_message` is in the middle of a batch."""
        self._subscriptions = Subscriptions(weak(self._emit), weak(self._pause_for), weak(self._resume_for), stream)
        self._layers = Layers()
        self._has_other_readers = False
        """There was a subscription or a layer."""
        self._early: list[Batch] = []
        """What arrived before the first subscription: for all that are made in the same iteration of the event loop."""
        self._pausing: set[Reader] = set()
        """Readers that wait for room in their inbox (`overflow="pause"`)."""

    # -- ways to read

    def subscribe(
        self,
        pattern: str | None = None,
        *,
        overflow: Overflow | str = Overflow.DROP_OLDEST,
        messages_max: int = 65_536,
        bytes_max: int = 16 << 20,
    ) -> Subscription:
        """An independent reader for the messages whose topic matches; without a pattern, for all messages.

        In a pattern, `*` stands for one level of the topic and `**` for any number. What this reader drops when it is
        full is reported in a `SubscriptionOverflow` event; `overflow="leave"` ends this subscription only.
        """
        self._check_loop()
        check_inbox(overflow, messages_max, bytes_max)
        if self._inbox.is_closed:
            raise self._end_error()
        subscription = Subscription(self, pattern, Overflow(overflow), messages_max, bytes_max, self._subscriptions)
        if not self._has_other_readers and not self._was_read:
            self._early = self._inbox.unread()
            self._loop.call_soon(self._early.clear)
        self._has_other_readers = True
        self._subscriptions.replay(subscription, self._early)
        return subscription

    def on_message(self, callback: Callable[[Message], None] | None) -> Callable[[], None]:
        """Call `callback` for each message instead of storing it in the inbox, beginning with the unread ones.

        There is one callback: a new one replaces it, and None removes it. Returns a function that removes this one.
        """
        if callback is None:
            return self.on_batch(None)
        check_callback(callback)

        def call_for_each(batch: Batch) -> None:
            read = batch.first_sequence
            self._is_calling_back = True
            try:
                for message in batch:
                    read = message.sequence
                    self._invoke(callback, message)
                    if self._batch_callback is not call_for_each:
                        break
            finally:
                self._is_calling_back = False
            if self._batch_callback is not call_for_each:  # removed or replaced: the rest is not for this callback
                self._inbox.push_front(batch.after(read))
                self.on_batch(self._batch_callback)

        return self.on_batch(call_for_each)

    def on_batch(self, callback: Callable[[Batch], None] | None) -> Callable[[], None]:
        """As `on_message`, with a whole batch at a time."""
        self._check_loop()
        if callback is not None:
            check_callback(callback)
        self._was_read = True
        self._batch_callback = callback
        self._on_callbacks_changed()

        def remove() -> None:
            if self._batch_callback is callback:
                self._batch_callback = None
                self._on_callbacks_changed()

        # During a callback of `on_message` the unread messages wait for the rest of its batch.
        while not self._is_calling_back and self._batch_callback is not None:
            batch = self._inbox.take_batch()
            if batch is None:
                break
            self._invoke(self._batch_callback, batch)
        return remove

    @property
    def _has_callbacks(self) -> bool:
        """Whether the program has a callback: then it need not keep the channel itself."""
        return self._batch_callback is not None or len(self._layers) > 0

    # -- delivered messages

    def _route(self, batch: Batch) -> None:
        if batch.kind <= CONTENT_MASK:
            self._dispatch(batch)
        elif batch.kind & FLAGS_MASK and (not batch.kind >> LAYER_SHIFT or self._layers.receives(batch.kind)):
            route = self._layers.route if batch.kind >> LAYER_SHIFT else self._dispatch
            for part in open_envelopes(
                batch, self._on_malformed_headers, self._private_keys, self._decompressed_bytes_max
            ):
                route(part)
        else:
            self._layers.route(batch)

    def _on_malformed_headers(self, batch: Batch, index: int, problem: WireError) -> None:
        """The author is to blame, not the neighbor that relayed it."""
        log.debug("%s: a message of %016x was dropped: %s", self.name, batch.author, problem)
        sequence = batch.first_sequence + index
        self._on_missed(Missed(batch.author, sequence, sequence))

    def _dispatch(self, batch: Batch) -> None:
        if self._has_other_readers:
            self._subscriptions.put(batch)
        callback = self._batch_callback
        if callback is not None:
            try:
                callback(batch)
            except CALLBACK_ERRORS:
                self._on_callback_failed()
        elif not self._discards_new:
            self._inbox.put(batch)
            if self._is_ignored:
                self._inbox.keep_newest(UNREAD_RING_BYTES)

    def _invoke(self, callback: Callable[[Any], None], item: Message | Batch) -> None:
        try:
            callback(item)
        except CALLBACK_ERRORS:
            self._on_callback_failed()

    def _on_callback_failed(self) -> None:
        log.exception("%s: the message callback failed", self.name)

    @property
    def _is_ignored(self) -> bool:
        """Whether the program reads only subscriptions or layers: what this inbox drops is no loss."""
        return self._has_other_readers and not self._was_read

    @property
    def _discards_new(self) -> bool:
        """Leaving with a full inbox: new messages are discarded, so that the unread ones have no gaps."""
        is_leaving = self._is_leaving and self._overflow_policy is not Overflow.DROP_OLDEST
        return self._has_overflowed or (is_leaving and self._inbox.is_full)

    # -- full inboxes

    def _on_inbox_full(self) -> None:
        if self._is_ignored:
            self._inbox.drop_oldest()
            return
        match self._overflow_policy:
            case Overflow.DROP_OLDEST:
                for missed in self._inbox.drop_oldest():
                    self._report_missed(missed)
            case Overflow.PAUSE:
                self._pause_for(self)
            case Overflow.LEAVE if not self._is_leaving:
                self._has_overflowed = True
                self._leave_soon()

    def _on_inbox_drained(self) -> None:
        self._resume_for(self)

    def _pause_for(self, reader: Reader) -> None:
        """Stop reading from the sockets until this reader has room. Not while leaving, which needs answers."""
        if not self._is_leaving:
            self._pausing.add(reader)
            self._pause_sockets(True)

    def _resume_for(self, reader: Reader) -> None:
        if reader in self._pausing:
            self._pausing.discard(reader)
            if not self._pausing:
                self._pause_sockets(False)

    # -- what the channel provides

    @property
    @abstractmethod
    def _decompressed_bytes_max(self) -> int: ...

    @property
    @abstractmethod
    def _is_leaving(self) -> bool: ...

    @abstractmethod
    def _leave_soon(self) -> None: ...

    @abstractmethod
    def _pause_sockets(self, pause: bool) -> None: ...

    @abstractmethod
    def _on_missed(self, missed: Missed) -> None:
        """No reader gets these messages."""

    @abstractmethod
    def _report_missed(self, missed: Missed) -> None: ...

    @abstractmethod
    def _emit(self, event: SubscriptionOverflow) -> None: ...

    @abstractmethod
    def _on_callbacks_changed(self) -> None: ...
