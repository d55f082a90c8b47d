"""The mailboxes that this program has bound: binding, writing, and their next records."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broadloom.errors import NoAnswerError
from broadloom.mailboxes.classes import MailboxClass, Operation
from broadloom.mailboxes.errors import RevisionMismatchError, UnboundError
from broadloom.mailboxes.keeping import Copies
from broadloom.mailboxes.letterbox import Letterbox
from broadloom.mailboxes.limits import BOUND_MAX, REVISION_MAX, check_name
from broadloom.mailboxes.record import UNBOUND, VALID, WHILE_HERE, Record, signed

if TYPE_CHECKING:
    from broadloom.mailboxes.post_office import PostOffice

PUT_ATTEMPTS = 3
"""A held value is put again, under a higher revision, if a keeper knows a higher one."""

VALUE_CLASS = 8
"""In the record that unbinds a value before its name gets a class without one."""

PutResult = int | Exception
"""The new revision, or why there is none."""


@dataclass(slots=True)
class Binding:
    """A mailbox of this program."""

    name: str
    mailbox_class: MailboxClass
    while_here: bool
    copies: int
    letterbox: Letterbox
    revision: int = 0
    """The highest that we have used, also if nobody knows it."""


class OwnMailboxes:
    def __init__(self, office: "PostOffice") -> None:
        self._office = office
        self._runtime = office.runtime
        self._table = office.table
        self._bindings: dict[str, Binding] = {}

    def get(self, name: str) -> Binding | None:
        return self._bindings.get(name)

    def unbind_all(self) -> None:
        """This program ends: what is bound to its presence is gone for all."""
        for binding in list(self._bindings.values()):
            if not self._lasts(binding):
                self.unbind(binding.name)
        self._bindings.clear()

    def bind(
        self, name: str, mailbox_class: MailboxClass, *, while_here: bool, copies: int, letterbox: Letterbox
    ) -> Binding:
        if name in self._bindings:
            raise ValueError(f"mailbox {name!r} is already bound in this program: use rebind to change its class")
        if len(self._bindings) >= BOUND_MAX:
            raise ValueError(f"{BOUND_MAX:,} mailboxes are bound in this program: unbind some")
        if copies != 1:
            mailbox_class.check(Operation.KEEP, name)
        bound = Binding(check_name(name), mailbox_class, while_here, copies, letterbox)
        self._bindings[name] = bound
        self._announce(bound)
        return bound

    def rebind(self, name: str, mailbox_class: MailboxClass, *, while_here: bool, copies: int) -> Binding:
        """Change the class. A value stays if both classes have one, and so do letters if both have a queue."""
        binding = self.binding(name)
        if copies != 1:
            mailbox_class.check(Operation.KEEP, name)
        old = binding.mailbox_class
        if old.receive is None or mailbox_class.receive is None or old.persistent != mailbox_class.persistent:
            binding.letterbox.clear()
        binding.mailbox_class, binding.while_here, binding.copies = mailbox_class, while_here, copies
        self._announce(binding)
        return binding

    def _announce(self, binding: Binding) -> None:
        found = binding.mailbox_class
        lasting = self._table.lasting(self._office.owner, binding.name)
        seen = self._table.get(self._office.owner, binding.name)
        if self._lasts(binding):
            if lasting is not None and lasting.class_number == found.number:
                return  # bound earlier: its value stays valid
            mine = seen if seen is not None and seen.writer == self._runtime.peer_id else None
            old = lasting or mine
            keeps_value = old is not None and old.is_valid
            data, ttl_ms = (old.data, old.ttl_ms) if old is not None and keeps_value else (b"", 0)
            self._office.publish(self._record(binding, data, VALID if keeps_value else 0, ttl_ms))
            return
        if lasting is not None:
            self._office.publish(self._record(binding, b"", UNBOUND, 0, lasts=True))
        self._office.publish(self._record(binding, b"", 0, 0))

    def _lasts(self, binding: Binding) -> bool:
        """Whether the record stays when this program is gone."""
        return binding.mailbox_class.is_value and self._office.is_lasting and not binding.while_here

    def _record(self, binding: Binding, data: bytes, flags: int, ttl_ms: int, *, lasts: bool | None = None) -> Record:
        """Our next record of this mailbox."""
        known = self._table.last_revision(self._office.owner, binding.name)
        binding.revision = max(known, binding.revision) + 1
        if binding.revision >= REVISION_MAX:
            raise ValueError(f"mailbox {binding.name!r} has no more revisions: use another name")
        if not (self._lasts(binding) if lasts is None else lasts):
            flags |= WHILE_HERE
        number = binding.mailbox_class.number if lasts is None else VALUE_CLASS
        record = Record(
            self._office.owner,
            binding.name,
            number,
            flags,
            binding.revision,
            int(self._runtime.peer_id),
            self._office.wall_ms(),
            ttl_ms,
            data,
        )
        return signed(self._runtime.signer, record)

    def unbind(self, name: str) -> None:
        binding = self.binding(name)
        del self._bindings[name]
        self._office.publish(self._record(binding, b"", UNBOUND, 0))

    def binding(self, name: str) -> Binding:
        found = self._bindings.get(name)
        if found is None:
            raise UnboundError(f"mailbox {name!r} is not bound in this program: bind it first")
        return found

    def put(
        self,
        name: str,
        data: bytes,
        on_done: Callable[[PutResult], None],
        *,
        if_revision: int | None = None,
        ttl_s: float | None = None,
        timeout_s: float = 5.0,
    ) -> None:
        """Replace the value. `on_done` gets the new revision; during this call, unless the value is held by keepers."""
        binding = self.binding(name)
        binding.mailbox_class.check(Operation.PUT, name)
        self._check_revision(name, if_revision)
        ttl_ms = max(1, round(ttl_s * 1000)) if ttl_s is not None else 0
        record = self._record(binding, data, VALID, ttl_ms)
        if not binding.mailbox_class.held:
            self._office.publish(record)
            on_done(record.revision)
            return
        deadline_at = self._runtime.now() + timeout_s
        self._keep(binding, record, if_revision, deadline_at, PUT_ATTEMPTS, on_done)

    def _keep(
        self,
        binding: Binding,
        record: Record,
        if_revision: int | None,
        deadline_at: float,
        attempts: int,
        on_done: Callable[[PutResult], None],
    ) -> None:
        def on_kept(error: Exception | None) -> None:
            if error is not None:
                on_done(error)
                return
            if copies.stale is None:
                if self._bindings.get(binding.name) is binding:
                    self._office.publish(record)
                on_done(record.revision)
                return
            self._office.on_records(self._runtime.peer_id, [copies.stale])
            if self._bindings.get(binding.name) is not binding:
                on_done(UnboundError(f"mailbox {binding.name!r} was unbound before keepers had the value"))
                return
            try:
                self._check_revision(binding.name, if_revision)
            except RevisionMismatchError as problem:
                on_done(problem)
                return
            if attempts <= 1:
                on_done(NoAnswerError(f"mailbox {binding.name!r}: other programs write to it all the time", sent=True))
                return
            again = self._record(binding, record.data, VALID, record.ttl_ms)
            self._keep(binding, again, if_revision, deadline_at, attempts - 1, on_done)

        timeout_s = deadline_at - self._runtime.now()
        copies = Copies(self._office, record, binding.copies, timeout_s, on_kept)
        copies.start()

    def _check_revision(self, name: str, if_revision: int | None) -> None:
        current = self._table.get(self._office.owner, name)
        revision = current.revision if current is not None else 0
        if if_revision is not None and if_revision != revision:
            text = f"mailbox {name!r} has revision {revision}, not {if_revision}: fetch it and decide again"
            raise RevisionMismatchError(text, revision)

    def invalidate(self, name: str) -> int:
        binding = self.binding(name)
        binding.mailbox_class.check(Operation.PUT, name)
        record = self._record(binding, b"", 0, 0)
        self._office.publish(record)
        return record.revision
