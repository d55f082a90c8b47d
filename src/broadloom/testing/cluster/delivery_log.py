"""What one peer of a lab was given, checked at each delivery: once, in order, no gap but those it was told of.

The ledger of a trial reads its own payload in each message; here messages are what they are, so it goes by author and
number alone. What has to be compared between peers is in `promises.py`.
"""

from typing import TYPE_CHECKING

from broadloom.testing.checks.delivery_log import DeliveryLog, TimedAuthorLog, ViolationCallback, message_label

if TYPE_CHECKING:
    from broadloom.protocol.events import Message


class ClusterDeliveryLog(DeliveryLog):
    """`delivered` is called with every message in the order in which the application gets them."""

    def __init__(self, peer_id: int, connected_ns: int, on_violation: ViolationCallback) -> None:
        super().__init__(peer_id, connected_ns, on_violation)
        self.delivery_count = 0

    def on_delivered(self, message: "Message", now_ns: int) -> None:
        author, sequence = message.author, message.sequence
        self.delivery_count += 1
        if author == self._peer_id:
            self._on_violation(1, f"was given its own message {message_label(author, sequence)}")
            return
        log = self.author_logs.get(author)
        if log is None:
            self.author_logs[author] = TimedAuthorLog(sequence, sequence, last_sent_ns=now_ns)
        elif sequence == log.last_sequence + 1:
            log.last_sequence, log.last_sent_ns = sequence, now_ns
        elif sequence <= log.last_sequence:
            self.delivered_twice += 1
            how = "after it was told that it missed it" if log.was_missed(sequence) else "twice"
            self._on_violation(1, f"was given {message_label(author, sequence)} {how}")
        else:
            self._on_violation(1, f"was given {message_label(author, sequence)} before {log.last_sequence + 1}")
            log.last_sequence, log.last_sent_ns = sequence, now_ns  # said once; what follows is judged by itself
