"""Keepers: members that store values on disk, so that these outlive their owners.

The owner of a held mailbox sends a new value to as many keepers as it wants copies, and publishes it when all of them
have acknowledged it. A keeper acknowledges a value after it is on disk. It refuses one that counts less than what it
has: then the owner learns what it missed.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING

from broadloom.mailboxes.anti_entropy import with_credentials, without_credentials
from broadloom.mailboxes.errors import NotKeptError
from broadloom.mailboxes.messages import Keep, KeepStatus, Kept, decode, encode
from broadloom.wire.xdr import WireError

if TYPE_CHECKING:
    from broadloom.mailboxes.post_office import PostOffice
    from broadloom.mailboxes.record import Record
    from broadloom.mailboxes.runtime import Answer, MailboxStore
    from broadloom.protocol.runtime import Timer
    from broadloom.wire import PeerId

COMMIT_DELAY_S = 0.2
"""Published values, which no one waits for, are committed together."""
KEEPER_TIMEOUT_S = 1.0
"""A keeper that does not answer in this time is replaced by another one, if there is one."""

OnKept = Callable[[Exception | None], None]


class KeeperStore:
    """The records of a keeper on disk."""

    def __init__(self, office: "PostOffice", store: "MailboxStore") -> None:
        self._office = office
        self._store = store
        self._commit_due: Timer | None = None

    def load(self) -> None:
        for record in self._store.load():
            self._office.restore(record)

    def put(self, record: "Record") -> None:
        """A new record. Values that are bound to presence are not stored: they end with their owner."""
        if not record.is_while_here:
            self._store.put(record)
            self._commit_soon()

    def remove(self, owner: str, name: str) -> None:
        self._store.remove(owner, name)
        self._commit_soon()

    def _commit_soon(self) -> None:
        if self._commit_due is None:
            self._commit_due = self._office.runtime.call_later(COMMIT_DELAY_S, self._on_commit_due)

    def _on_commit_due(self) -> None:
        self._commit_due = None
        self._store.commit()

    def commit(self) -> None:
        self._store.commit()

    def close(self) -> None:
        if self._commit_due is not None:
            self._commit_due.cancel()
        self._store.commit()
        self._store.close()

    def on_keep(self, peer_id: "PeerId", message: Keep) -> Kept:
        records = without_credentials(message.records, message.credentials)
        if len(records) != 1:
            raise WireError("a keeper is asked for one record at a time")
        (record,) = records
        known = self._office.table.known(record)
        if known is not None and known.revision >= record.revision and known != record:
            return Kept(KeepStatus.STALE, *with_credentials([known]))
        if record.writer != peer_id or (known != record and not self._office.on_records(peer_id, records)):
            return Kept(KeepStatus.REFUSED, (), ())
        self.commit()
        return Kept(KeepStatus.KEPT, (), ())


class Copies:
    """One value on its way to several keepers."""

    def __init__(self, office: "PostOffice", record: "Record", copies: int, timeout_s: float, on_kept: OnKept) -> None:
        self._office = office
        self._runtime = office.runtime
        self._record = record
        self._wanted = copies
        self._deadline_at = office.runtime.now() + timeout_s
        self._on_kept: OnKept | None = on_kept
        self._acknowledged = 0
        self._asked: dict[PeerId, None] = {}
        self._open = 0
        self.stale: Record | None = None
        """What a keeper has that counts more."""
        self._message = encode(Keep(*with_credentials([record])))

    def start(self) -> None:
        if self._office.keeper_store is not None:
            self._office.keeper_store.put(self._record)
            self._office.keeper_store.commit()
            self._acknowledged += 1
        self._advance()

    def _advance(self) -> None:
        if self._on_kept is None:
            return
        if self._acknowledged >= self._wanted:
            self._end(None)
            return
        left_s = self._deadline_at - self._runtime.now()
        candidates = [each for each in self._runtime.keepers() if each not in self._asked]
        while candidates and left_s > 0 and self._acknowledged + self._open < self._wanted:
            # The same keepers for the same mailbox, and others for others.
            keeper = min(candidates, key=lambda each: hash_pair(each, self._record.name))
            candidates.remove(keeper)
            self._asked[keeper] = None
            self._open += 1
            self._runtime.request(keeper, self._message, min(left_s, KEEPER_TIMEOUT_S), self._on_answer)
        if not self._open:
            text = (
                f"mailbox {self._record.name!r}: {self._acknowledged} of {self._wanted} keepers have stored the value; "
                "start more with `broadloom keep`, or ask for fewer copies"
            )
            self._end(NotKeptError(text, self._acknowledged))

    def _on_answer(self, answer: "Answer") -> None:
        self._open -= 1
        if self._on_kept is None:
            return
        if answer.error is None:
            try:
                reply = decode(answer.data)
                if isinstance(reply, Kept):
                    self._on_reply(reply)
            except WireError:
                pass  # as if it had not answered
        self._advance()

    def _on_reply(self, reply: Kept) -> None:
        if reply.status is KeepStatus.KEPT:
            self._acknowledged += 1
        elif reply.status is KeepStatus.STALE:
            found = without_credentials(reply.records, reply.credentials)
            if len(found) == 1 and found[0].key == self._record.key and found[0].revision >= self._record.revision:
                (self.stale,) = found
                self._end(None)

    def _end(self, error: Exception | None) -> None:
        on_kept, self._on_kept = self._on_kept, None
        if on_kept is not None:
            on_kept(error)


def hash_pair(peer_id: "PeerId", name: str) -> int:
    """Rendezvous hashing: an order of the keepers that differs from name to name."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8, key=peer_id.to_bytes(8, "big")).digest(), "big")
