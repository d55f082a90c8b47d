"""`PostOffice`: the mailboxes of one program, and what it knows of all others. Sans-IO: see runtime.py.

It owns the bindings of this program. The table, anti-entropy, the outbox and the keeping of values are parts of it.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broadloom.errors import RefusedError
from broadloom.mailboxes.anti_entropy import AntiEntropy, with_credentials, without_credentials
from broadloom.mailboxes.classes import CLASSES, Operation
from broadloom.mailboxes.errors import AmbiguousMailboxError, NotValidError, UnboundError
from broadloom.mailboxes.keeping import KeeperStore
from broadloom.mailboxes.limits import MailboxSettings, check_name, check_owner
from broadloom.mailboxes.messages import (
    Confirm,
    Deliver,
    Delivered,
    DeliverStatus,
    Digest,
    Fetch,
    Fetched,
    Keep,
    KeepStatus,
    Kept,
    PageRequest,
    Publish,
    decode,
    encode,
)
from broadloom.mailboxes.model import Change, ChangeKind, GoneReason, Letter, LimitReached, Overruled, Synced, Value
from broadloom.mailboxes.outbox import Outbox
from broadloom.mailboxes.own_mailboxes import OwnMailboxes
from broadloom.mailboxes.record import Record, is_proven
from broadloom.mailboxes.recording import record_gone, record_seen
from broadloom.mailboxes.table import MailboxTable
from broadloom.wire import PeerId
from broadloom.wire.xdr import WireError

if TYPE_CHECKING:
    from broadloom.mailboxes.runtime import Answer, MailboxRuntime, MailboxStore
    from broadloom.protocol.runtime import Timer

REPORTED_LIMITS_MAX = 1000


class PostOffice:
    def __init__(
        self,
        runtime: "MailboxRuntime",
        owner: str,
        *,
        is_lasting: bool = True,
        store: "MailboxStore | None" = None,
        settings: MailboxSettings | None = None,
    ) -> None:
        """`is_lasting`: whether a later program can have the same owner name. If not, values end with this program."""
        self.runtime = runtime
        self.owner = check_owner(owner)
        self.is_lasting = is_lasting
        self.settings = settings or MailboxSettings()
        self.table = MailboxTable(runtime.is_member, self.settings.tombstone_s)
        self.table.on_seen, self.table.on_gone, self.table.on_limit = self._on_seen, self._on_gone, self._on_limit
        self.keeper_store = KeeperStore(self, store) if store is not None else None
        self.own = OwnMailboxes(self)
        self.outbox = Outbox(runtime, self._on_deliver)
        self.anti_entropy = AntiEntropy(self)
        self.rejected_count = 0
        """Records and messages of others that were invalid or not proven."""
        self._expiry_due: Timer | None = None
        self._reported_limits: dict[tuple[str, str], None] = {}
        if self.keeper_store is not None:
            self.keeper_store.load()

    # -- from the runtime

    def start(self) -> None:
        """The roster is complete."""
        self.anti_entropy.start()

    def on_synced(self) -> None:
        self.runtime.emit(Synced())

    def on_broadcast(self, author: PeerId, data: bytes) -> None:
        try:
            message = decode(data)
        except WireError:
            self.rejected_count += 1
            return
        if isinstance(message, Publish):
            own = [record for record, _ in message.records if record.writer == author]
            self.rejected_count += len(message.records) - len(own)
            signer = self.runtime.signer
            if signer is not None:
                credential = signer.credential_of(author)
                own = [record._replace(credential=credential) for record in own]
            self.on_records(author, own)
        elif isinstance(message, Digest):
            self.anti_entropy.on_digest(author, message)
        else:
            self.rejected_count += 1

    def on_request(self, peer_id: PeerId, data: bytes) -> bytes:
        """Returns the reply. Raises `RefusedError` for a request that is invalid, or one too many."""
        try:
            message = decode(data)
            if isinstance(message, Deliver):
                return encode(self._on_deliver(peer_id, message))
            if isinstance(message, Fetch):
                return encode(self._on_fetch(peer_id, message))
            if isinstance(message, Keep):
                if self.keeper_store is None:
                    return encode(Kept(KeepStatus.NOT_A_KEEPER, (), ()))
                return encode(self.keeper_store.on_keep(peer_id, message))
            if isinstance(message, PageRequest):
                page = self.anti_entropy.on_page_request(peer_id, message)
                if page is None:
                    raise RefusedError("too many pages")
                return encode(page)
            if isinstance(message, Confirm):
                if not self.anti_entropy.may_serve(peer_id):
                    raise RefusedError("too many pages")
                return encode(self.anti_entropy.vouching.on_confirm(message))
        except WireError as problem:
            self.rejected_count += 1
            raise RefusedError(f"not a mailbox request: {problem}") from None
        self.rejected_count += 1
        raise RefusedError("not a mailbox request")

    def on_member_joined(self, peer_id: PeerId) -> None:
        self.table.on_member_joined(peer_id, self.wall_ms())

    def on_member_gone(self, peer_id: PeerId) -> None:
        self.table.on_member_gone(peer_id, self.runtime.now())

    def on_missed(self) -> None:
        """Messages were lost, or two parts of the channel have merged."""
        self.anti_entropy.announce_soon()

    def close(self) -> None:
        if self._expiry_due is not None:
            self._expiry_due.cancel()
        self.anti_entropy.close()
        self.outbox.close()
        if self.keeper_store is not None:
            self.keeper_store.close()

    # -- records of all members

    def on_records(self, source: PeerId, records: Sequence[Record], *, are_proven: bool = False) -> int:
        """Enter records of other members; return how many were new. Only their owner can have written them, if the
        channel has tickets: `are_proven` if that is known without their signatures."""
        new = 0
        signer = self.runtime.signer if not are_proven else None
        for record in records:
            if self.table.outranks(record):
                continue
            if signer is not None and not is_proven(signer, record):
                self.rejected_count += 1
                continue
            new += self._enter(record)
        return new

    def restore(self, record: Record) -> None:
        """Enter a record from our own disk."""
        self.table.merge(record, self.runtime.now(), self.wall_ms())
        self._schedule_expiry()

    def _enter(self, record: Record) -> bool:
        is_new = self.table.merge(record, self.runtime.now(), self.wall_ms())
        if is_new:
            if self.keeper_store is not None:
                self.keeper_store.put(record)
            if record.ttl_ms:
                self._schedule_expiry()
        return is_new

    def publish(self, record: Record) -> None:
        self._enter(record)
        self.runtime.broadcast(encode(Publish(((record, 0),))))

    def purge(self) -> None:
        for owner, name in self.table.purge(self.runtime.now()):
            if self.keeper_store is not None:
                self.keeper_store.remove(owner, name)

    def _schedule_expiry(self) -> None:
        next_ms = self.table.next_expiry_ms
        if self._expiry_due is not None:
            self._expiry_due.cancel()
            self._expiry_due = None
        if next_ms is not None:
            delay_s = max(0.001, (next_ms - self.wall_ms()) / 1000)
            self._expiry_due = self.runtime.call_later(delay_s, self._on_expiry)

    def _on_expiry(self) -> None:
        self._expiry_due = None
        self.table.expire(self.runtime.now(), self.wall_ms())
        self._schedule_expiry()

    def _on_seen(self, record: Record, previous: Record | None, is_new: bool) -> None:
        record_seen(self.runtime.observer, record)
        had_value = previous is not None and previous.is_valid and CLASSES[previous.class_number].fetchable
        if record.is_valid and CLASSES[record.class_number].fetchable:
            self.runtime.on_change(Change(ChangeKind.PUT if is_new else ChangeKind.PRESENT, value_of(record)))
        elif had_value and previous is not None:
            self.runtime.on_change(Change(ChangeKind.GONE, value_of(previous), GoneReason.INVALIDATED))
        if previous is not None and record.writer != self.runtime.peer_id:
            self._check_overruled(previous, record if record.is_valid else None)

    def _on_gone(self, record: Record, reason: GoneReason) -> None:
        record_gone(self.runtime.observer, record, reason)
        if record.is_valid and CLASSES[record.class_number].fetchable:
            self.runtime.on_change(Change(ChangeKind.GONE, value_of(record), reason))
        if reason is GoneReason.UNBOUND:
            self._check_overruled(record, None)

    def _check_overruled(self, lost: Record, winner: Record | None) -> None:
        """Report that a record of ours no longer counts, if it was not us who replaced it."""
        if lost.owner == self.owner and lost.writer == self.runtime.peer_id and self.own.get(lost.name) is not None:
            self.runtime.emit(Overruled(lost.name, value_of(winner) if winner is not None else None, lost.revision))

    def _on_limit(self, owner: str, limit: str) -> None:
        if (owner, limit) not in self._reported_limits and len(self._reported_limits) < REPORTED_LIMITS_MAX:
            self._reported_limits[owner, limit] = None
            self.runtime.emit(LimitReached(owner, limit))

    # -- reading values

    def find(self, name: str, owner: str | None) -> Record:
        """The live record of a mailbox. Raises `UnboundError` or `AmbiguousMailboxError`."""
        check_name(name)
        found = self.table.named(name)
        if owner is not None:
            found = [each for each in found if each.owner == owner]
        if not found:
            raise UnboundError(
                f"no mailbox {name!r}" + (f" of {owner!r}" if owner is not None else "") + " is known on this channel"
            )
        if len(found) > 1:
            owners = ", ".join(sorted(repr(each.owner) for each in found)[:10])
            raise AmbiguousMailboxError(f"several owners have a mailbox {name!r}: choose one with of=; {owners}")
        return found[0]

    def fetch(self, name: str, owner: str | None) -> Value:
        """The value as it is known here. A mailbox of our own can be read even if others cannot."""
        record = self.find(name, owner)
        if record.owner != self.owner:
            CLASSES[record.class_number].check(Operation.FETCH, name)
        return checked_value(record)

    def fetch_fresh(
        self, name: str, owner: str | None, timeout_s: float, on_done: Callable[[Value | Exception], None]
    ) -> None:
        """The value as its writer has it now."""
        record = self.find(name, owner)
        CLASSES[record.class_number].check(Operation.FETCH, name)
        if record.writer == self.runtime.peer_id:
            on_done(checked_value(record))
            return

        def on_answer(answer: "Answer") -> None:
            if answer.error is not None:
                on_done(answer.error)
                return
            try:
                reply = decode(answer.data)
                if not isinstance(reply, Fetched):
                    raise WireError("it is not a value")
                self.on_records(record.writer, without_credentials(reply.records, reply.credentials))
                on_done(self.fetch(name, record.owner))
            except WireError as problem:
                on_done(RefusedError(f"{record.writer:016x} sent an invalid reply: {problem}", "failed"))
            except Exception as problem:  # the value is gone
                on_done(problem)

        self.runtime.request(record.writer, encode(Fetch(record.owner, name)), timeout_s, on_answer)

    def _on_fetch(self, peer_id: PeerId, message: Fetch) -> Fetched:
        record = self.table.get(message.owner, message.name)
        if record is None or not CLASSES[record.class_number].fetchable:
            return Fetched((), ())
        return Fetched(*with_credentials([record]))

    # -- letters of others

    def _on_deliver(self, peer_id: PeerId, message: Deliver) -> Delivered:
        binding = self.own.get(message.name)
        if binding is None:
            return Delivered(0, DeliverStatus.UNBOUND, f"mailbox {message.name!r} of {self.owner!r} is not bound")
        found = binding.mailbox_class
        if not found.allows(Operation.POST):
            text = f"mailbox {message.name!r} of {self.owner!r} is of {found}: it does not take letters"
            return Delivered(0, DeliverStatus.WRONG_CLASS, text)
        sender = PeerId(peer_id)
        letters = [
            Letter(message.name, sender, each.reply_to, each.data, each.priority, each.is_ring)
            for each in message.letters
        ]
        count, status = binding.letterbox.accept(found, sender, letters)
        return Delivered(count, status, "")

    def wall_ms(self) -> int:
        return int(self.runtime.wall_time_s() * 1000)


def value_of(record: Record) -> Value:
    return Value(record.name, record.owner, record.revision, record.data, record.at_ms, PeerId(record.writer))


def checked_value(record: Record) -> Value:
    """Raises `NotValidError`."""
    if not record.is_valid:
        raise NotValidError(f"mailbox {record.name!r} of {record.owner!r} has no value yet, or no longer")
    return value_of(record)
