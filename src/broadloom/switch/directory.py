"""`Directory`: what every program on the channel has registered, and whether this list is complete.

Each program announces its whole registration when it changes, signed, so that others may pass it on. A newcomer asks
one member for all registrations it knows, and then those that are still missing. The list is complete once there is a
registration of every member whose entry in the roster has the layer of the switch. Only then may a request fail because
nobody handles it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from broadloom.protocol.requests.outgoing import Outcome, OutcomeKind
from broadloom.switch import settings
from broadloom.switch.codec import (
    Announcement,
    JoinedFile,
    RecordBody,
    Records,
    RecordsRequest,
    SignedRegistration,
    decode,
    encode,
    unpack_record,
)
from broadloom.switch.model import Pattern, Scope, SwitchMessage
from broadloom.switch.pattern_index import IndexedPattern, PatternIndex
from broadloom.wire import PeerId, WireError

if TYPE_CHECKING:
    from broadloom.protocol.runtime import Timer
    from broadloom.switch.runtime import SwitchRuntime


class FileJoin(NamedTuple):
    """A session that works on a file, and since when."""

    session: str
    joined_at_ms: int


@dataclass(frozen=True, slots=True)
class Registration:
    """What one program has registered, as `Switch.registrations` lists it."""

    peer_id: PeerId
    session: str
    program: str
    patterns: tuple[Pattern, ...]
    files: tuple[str, ...]


class _Entry(NamedTuple):
    body: RecordBody
    signed: SignedRegistration


class Directory:
    def __init__(self, runtime: "SwitchRuntime", on_change: Callable[[], None]) -> None:
        self._runtime = runtime
        self._on_change = on_change
        self.handlers = PatternIndex()
        self.observers = PatternIndex()
        self._found: dict[tuple[object, ...], tuple[IndexedPattern, ...]] = {}
        """Handlers that were found, until a registration changes."""
        self._entries: dict[PeerId, _Entry] = {}
        self._stale: dict[PeerId, None] = {}
        """Programs of which a broadcast was missed: it may have been a newer registration."""
        self._unverified: dict[PeerId, SignedRegistration] = {}
        self._sessions_of_file: dict[str, dict[str, dict[PeerId, int]]] = {}
        """File, session, program: time of joining."""
        self._pulling: dict[PeerId, None] = {}
        self._pull_again_at: dict[PeerId, float] = {}
        self._missing_since: dict[PeerId, float] = {}
        self._timer: Timer | None = None
        self._opened_at = runtime.now()
        self._was_complete = False
        self.rejected_count = 0
        """Registrations with an invalid signature or an invalid session."""

    def start(self) -> None:
        self._tick()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # -- queries

    def get(self, peer_id: PeerId) -> RecordBody | None:
        entry = self._entries.get(peer_id)
        return entry.body if entry is not None else None

    def registrations(self) -> list[Registration]:
        return [
            Registration(
                peer_id, entry.body.session, entry.body.program, entry.body.patterns, _file_names(entry.body.files)
            )
            for peer_id, entry in sorted(self._entries.items())
        ]

    def programs(self, name: str) -> Iterator[tuple[PeerId, RecordBody]]:
        """The programs of this type that run."""
        for peer_id, entry in self._entries.items():
            if entry.body.program == name:
                yield peer_id, entry.body

    def joins(self, file: str) -> list[FileJoin]:
        """The sessions that have joined a file, with the time of the most recent join."""
        sessions = self._sessions_of_file.get(file, {})
        return [FileJoin(session, max(by_program.values())) for session, by_program in sorted(sessions.items())]

    def is_joined(self, session: str, file: str) -> bool:
        return session in self._sessions_of_file.get(file, ())

    def find_handlers(self, message: SwitchMessage) -> tuple[IndexedPattern, ...]:
        key = (message.message_class, message.scope, message.session, message.file, message.operation)
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= settings.FOUND_MAX:
                self._found.clear()
            found = self._found[key] = tuple(self._find(self.handlers, message))
        return found

    def remote_observers(self, message: SwitchMessage) -> dict[PeerId, str]:
        """The other programs that observe this, with their sessions."""
        if not self.observers:
            return {}
        own = self._runtime.peer_id
        return {each.peer_id: each.session for each in self._find(self.observers, message) if each.peer_id != own}

    def is_observed(self, message: SwitchMessage) -> bool:
        """Whether a program, this one included, observes this."""
        return bool(self.observers) and next(self._find(self.observers, message), None) is not None

    def _find(self, index: PatternIndex, message: SwitchMessage) -> Iterator[IndexedPattern]:
        """A pattern that names no file gets messages of other sessions only about files that its session has joined."""
        sessions = self._sessions_of_file.get(message.file, ())
        for entry in index.find(message, message.session):
            if entry.session == message.session or entry.pattern.files is not None or entry.session in sessions:
                yield entry

    @property
    def is_complete(self) -> bool:
        """Whether the registrations of all members are known. Found out again when members join, and every second."""
        if not self._was_complete:
            runtime = self._runtime
            is_settled = runtime.now() >= self._opened_at + settings.SETTLE_S
            self._was_complete = is_settled and runtime.has_whole_roster and not self._missing()
        return self._was_complete

    def _missing(self) -> list[PeerId]:
        """Members without a registration, except those that have not sent one for a long time."""
        own, entries, stale = self._runtime.peer_id, self._entries, self._stale
        unregistered = [
            member.peer_id
            for member in self._runtime.members()
            if settings.LAYER in member.layers
            and (member.peer_id not in entries or member.peer_id in stale)
            and member.peer_id != own
            and not member.is_secondary
        ]
        now = self._runtime.now()
        self._missing_since = {each: self._missing_since.get(each, now) for each in unregistered}
        return [each for each in unregistered if now < self._missing_since[each] + settings.UNRESPONSIVE_S]

    # -- registrations

    def set_own(self, body: RecordBody, signed: SignedRegistration) -> None:
        self._store(signed, body)
        self._on_change()

    def own_record(self) -> SignedRegistration:
        return self._entries[self._runtime.peer_id].signed

    def on_announcement(self, author: PeerId, message: Announcement) -> None:
        self.add(SignedRegistration(author, message.body, message.signature))

    def add(self, signed: SignedRegistration) -> None:
        """A registration from its program, or from another one that passes it on."""
        runtime, peer_id = self._runtime, signed.peer_id
        if peer_id == runtime.peer_id:
            return
        known = self._entries.get(peer_id)
        if known is not None and known.signed.body == signed.body:
            self._stale.pop(peer_id, None)
            return
        member = runtime.member(peer_id)
        if member is None:
            self._unverified.pop(peer_id, None)
            size = sum(len(each.body) for each in self._unverified.values()) + len(signed.body)
            if len(self._unverified) < settings.UNVERIFIED_MAX and size <= settings.UNVERIFIED_BYTES_MAX:
                self._unverified[peer_id] = signed
            return
        body = self._verified(signed, member.name if member.is_proven else None)
        if body is None:
            self.rejected_count += 1
        elif known is None or body.version > known.body.version:
            self._stale.pop(peer_id, None)
            self._store(signed, body)
            self._on_change()

    def _verified(self, signed: SignedRegistration, proven_name: str | None) -> RecordBody | None:
        if not self._runtime.is_signed_by(signed.peer_id, signed.body, signed.signature):
            return None
        try:
            body = unpack_record(signed.body)
        except WireError:
            return None
        if not is_own_session(body.session, proven_name):
            return None
        return body

    def _store(self, signed: SignedRegistration, body: RecordBody) -> None:
        peer_id = signed.peer_id
        self._drop(peer_id)
        self._found.clear()
        self._entries[peer_id] = _Entry(body, signed)
        handlers = tuple(pattern for pattern in body.patterns if pattern.is_handler)
        self.handlers.set(peer_id, body.session, handlers)
        self.observers.set(peer_id, body.session, tuple(each for each in body.patterns if not each.is_handler))
        for joined in body.files:
            sessions = self._sessions_of_file.setdefault(joined.file, {})
            sessions.setdefault(body.session, {})[peer_id] = joined.joined_at_ms

    def _drop(self, peer_id: PeerId) -> None:
        entry = self._entries.pop(peer_id, None)
        if entry is None:
            return
        self._found.clear()
        self.handlers.remove(peer_id)
        self.observers.remove(peer_id)
        for joined in entry.body.files:
            sessions = self._sessions_of_file[joined.file]
            by_program = sessions.get(entry.body.session, {})
            by_program.pop(peer_id, None)
            if not by_program:
                sessions.pop(entry.body.session, None)
            if not sessions:
                del self._sessions_of_file[joined.file]

    # -- members

    def on_member_joined(self, peer_id: PeerId) -> None:
        self._was_complete = False
        signed = self._unverified.pop(peer_id, None)
        if signed is not None:
            self.add(signed)

    def on_member_gone(self, peer_id: PeerId) -> None:
        self._stale.pop(peer_id, None)
        self._pull_again_at.pop(peer_id, None)
        if peer_id in self._entries:
            self._drop(peer_id)
            self._on_change()

    def on_missed(self, author: PeerId) -> None:
        if author in self._entries:
            self._stale[author] = None
            self._tick()

    # -- requesting what is missing

    def _tick(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._was_complete = False
        self._pull()
        delay_s = 1.0 if self.is_complete else settings.PULL_DELAY_S
        self._timer = self._runtime.call_later(delay_s, self._tick)
        self._on_change()

    def _pull(self) -> None:
        """Ask members that are missing. A reply has what its sender knows of the others, too."""
        now, pulling = self._runtime.now(), self._pulling
        due = [each for each in self._missing() if each not in pulling and self._pull_again_at.get(each, 0.0) <= now]
        # Not all newcomers ask the same members, and one reply may be enough.
        room = (settings.PULLS_MAX if len(due) < settings.PULLS_MAX or self._pull_again_at else 1) - len(pulling)
        start = self._runtime.peer_id % len(due) if due else 0
        for peer_id in [*due[start:], *due[:start]][: max(0, room)]:
            pulling[peer_id] = None
            self._runtime.request(
                peer_id,
                encode(RecordsRequest()),
                settings.PULL_TIMEOUT_S,
                lambda outcome, peer_id=peer_id: self._on_records(peer_id, outcome),  # type: ignore[misc]
            )

    def _on_records(self, peer_id: PeerId, outcome: Outcome) -> None:
        self._pulling.pop(peer_id, None)
        self._pull_again_at[peer_id] = self._runtime.now() + 1.0
        if outcome.kind is OutcomeKind.REPLIED:
            try:
                message = decode(outcome.data)
            except WireError:
                message = None
            for signed in message.records if isinstance(message, Records) else ():
                self.add(signed)
            if peer_id in self._stale and isinstance(message, Records):
                del self._stale[peer_id]  # it has sent what we have
        if outcome.kind is not OutcomeKind.LEFT:
            self._runtime.call_later(0.0, self._pull)
            self._on_change()

    def records(self) -> Records:
        """For another member: our own registration first, then others as far as they fit."""
        own = self._runtime.peer_id
        chosen: list[SignedRegistration] = []
        size = 0
        for peer_id, entry in sorted(self._entries.items(), key=lambda item: (item[0] != own, item[0])):
            size += len(entry.signed.body) + len(entry.signed.signature) + 32
            if size > settings.RECORDS_BYTES_MAX or len(chosen) == settings.RECORDS_MAX:
                break
            if peer_id not in self._stale:
                chosen.append(entry.signed)
        return Records(tuple(chosen))


def is_own_session(session: str, proven_name: str | None) -> bool:
    """With a ticket, a session is the name on it, or begins with this name and a slash."""
    return proven_name is None or session == proven_name or session.startswith(f"{proven_name}/")


def joined_files(patterns: tuple[Pattern, ...], extra: tuple[str, ...]) -> tuple[str, ...]:
    """The files that a program works on: those of its patterns, and those that it has added."""
    named = [file for each in patterns if each.scope is not Scope.SESSION for file in each.files or ()]
    return tuple(dict.fromkeys([*named, *extra]))


def _file_names(files: tuple[JoinedFile, ...]) -> tuple[str, ...]:
    return tuple(joined.file for joined in files)
