"""`SwitchCore`: one program's part in the switch, without IO: its registration, its messages, and those of others.

It meets the world through `SwitchRuntime`. The parts own their state: `Directory` what others have registered,
`Sender` our messages, `Handlers` those that we handle, `ProgramHost` those for programs that do not run.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from broadloom.protocol.requests.incoming import IncomingRequest
from broadloom.switch import settings
from broadloom.switch.codec import (
    Announcement,
    HandlerCopy,
    HandlerResult,
    JoinedFile,
    ObserverCopy,
    Progress,
    QueuedResult,
    QueueLengths,
    QueueLengthsRequest,
    RecordBody,
    RecordsRequest,
    Result,
    SignedRegistration,
    decode,
    encode,
    pack_record,
)
from broadloom.switch.directory import Directory, is_own_session, joined_files
from broadloom.switch.handlers import Handler, Handlers, Respond, declined, failed
from broadloom.switch.model import (
    Disposition,
    FailureReason,
    IfLost,
    MessageClass,
    MessageId,
    MessageState,
    Pattern,
    Recipient,
    Scope,
    SwitchMessage,
)
from broadloom.switch.observers import ObserverEntry, Observers
from broadloom.switch.outgoing import OnStep, OutgoingMessage, Sender
from broadloom.switch.pattern_index import IndexedPattern
from broadloom.switch.pattern_room import PatternRoom
from broadloom.switch.program_host import ProgramHost
from broadloom.switch.queue_store import MemoryQueue, QueueStore
from broadloom.switch.recording import recorded_steps
from broadloom.wire import PeerId, WireError
from broadloom.wire.direct_messages import RequestStatus

if TYPE_CHECKING:
    from broadloom.protocol.runtime import Timer
    from broadloom.switch.program_types import ProgramType
    from broadloom.switch.runtime import SwitchRuntime


class SwitchCore:
    def __init__(
        self,
        runtime: "SwitchRuntime",
        session: str,
        program: str = "",
        programs: "Mapping[str, ProgramType] | None" = None,
        queue: QueueStore | None = None,
        counter: Iterator[int] | None = None,
    ) -> None:
        self.runtime = runtime
        self.session = session
        self.program = program
        self.directory = Directory(runtime, self._on_directory_changed)
        self.handlers = Handlers(runtime, program, self._matches)
        self.observers = Observers(runtime, self.directory, self._matches)
        self.sender = Sender(self)
        self.host = ProgramHost(self, programs or {}, queue or MemoryQueue())
        self.listeners: list[Callable[[], object]] = []
        """Called when the directory has changed."""
        self._unchecked: list[tuple[IncomingRequest, HandlerCopy]] = []
        """Copies from a host whose registration is not known yet."""
        self._room = PatternRoom()
        self._extra_files: dict[str, None] = {}
        """Files that were added, also if no pattern names them."""
        self._joined_at_ms: dict[str, int] = {}
        self._counter = counter or count(1)
        self._version = runtime.wall_time_ms()
        """Of our registration. Later ones have higher versions, also after the switch was closed and opened again."""
        self._started_at = runtime.now()
        self._announced_at = -settings.REANNOUNCE_S
        self._announce_timer: Timer | None = None
        self._is_changed = True
        self._is_announced = False
        self._is_closed = False
        self.malformed_count = 0
        self.forged_count = 0
        """Copies and results that their senders had no right to send."""

    def start(self) -> None:
        self._refresh()
        self.directory.start()
        self._schedule_announcement(settings.ANNOUNCE_DELAY_S)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self.sender.close()
        self.handlers.close()
        self.host.close()
        self.directory.stop()
        if self._announce_timer is not None:
            self._announce_timer.cancel()
        self._version += 1
        self._broadcast_record(RecordBody(self._version, self.session, self.program, True, (), ()))

    # -- registration

    def add_handler(self, handler: Handler) -> None:
        self._room.take(handler.pattern, self.patterns)
        self.handlers.add(handler)
        self._on_registration_changed()

    def remove_handler(self, handler: Handler) -> None:
        self.handlers.remove(handler)
        self._on_registration_changed()

    def add_observer(self, observer: ObserverEntry) -> None:
        self._room.take(observer.pattern, self.patterns)
        self.observers.add(observer)
        self._on_registration_changed()

    def remove_observer(self, observer: ObserverEntry) -> None:
        self.observers.remove(observer)
        self._on_registration_changed()

    def add_file(self, file: str) -> None:
        """Add a file to all patterns that name files."""
        widened = sum(each.pattern.files is not None for each in (*self.handlers, *self.observers))
        self._room.take(Pattern(False, files=(file,) * (widened + 1)), self.patterns)
        self._extra_files[file] = None
        for each in (*self.handlers, *self.observers):
            files = each.pattern.files
            if files is not None and file not in files:
                each.pattern = replace(each.pattern, files=(*files, file))
        self._on_registration_changed()

    def remove_file(self, file: str) -> None:
        self._extra_files.pop(file, None)
        for each in (*self.handlers, *self.observers):
            if each.pattern.files is not None and file in each.pattern.files:
                each.pattern = replace(each.pattern, files=tuple(one for one in each.pattern.files if one != file))
        self._on_registration_changed()

    def patterns(self) -> tuple[Pattern, ...]:
        """All that we register, also for programs that do not run."""
        own = [each.pattern for each in (*self.handlers, *self.observers)]
        return (*own, *(pattern for kind in self.host.types.values() for pattern in kind.handles))

    def _matches(self, pattern: Pattern, message: SwitchMessage) -> bool:
        is_local = message.session == self.session
        if not pattern.matches(message, is_local=is_local):
            return False
        return is_local or pattern.files is not None or self.directory.is_joined(self.session, message.file)

    def _on_registration_changed(self) -> None:
        self._is_changed = True
        self._schedule_announcement(settings.ANNOUNCE_DELAY_S)

    def _refresh(self) -> None:
        """Our own registration in the directory: several changes cost one update."""
        if not self._is_changed or self._is_closed:
            return
        self._is_changed = False
        patterns, now_ms = self.patterns(), self.runtime.wall_time_ms()
        files = joined_files(patterns, tuple(self._extra_files))
        self._joined_at_ms = {file: self._joined_at_ms.get(file, now_ms) for file in files}
        self._version += 1
        joined = tuple(JoinedFile(file, at_ms) for file, at_ms in self._joined_at_ms.items())
        body = RecordBody(self._version, self.session, self.program, False, patterns, joined)
        packed = pack_record(body)
        signed = SignedRegistration(self.runtime.peer_id, packed, self.runtime.sign(packed))
        self.directory.set_own(body, signed)

    def _schedule_announcement(self, delay_s: float) -> None:
        if self._announce_timer is None and not self._is_closed:
            self._announce_timer = self.runtime.call_later(delay_s, self._announce)

    def _announce(self) -> None:
        self._announce_timer = None
        self._refresh()
        signed = self.directory.own_record()
        self._announced_at = self.runtime.now()
        is_first, self._is_announced = not self._is_announced, True
        self.runtime.broadcast(encode(Announcement(is_first, signed.body, signed.signature)))

    def _broadcast_record(self, body: RecordBody) -> None:
        packed = pack_record(body)
        self.runtime.broadcast(encode(Announcement(False, packed, self.runtime.sign(packed))))

    # -- sending

    def send(
        self,
        message_class: MessageClass,
        operation: str,
        data: bytes,
        on_step: OnStep,
        *,
        timeout_s: float,
        scope: Scope = Scope.SESSION,
        file: str = "",
        recipient: Recipient = Recipient.BOTH,
        disposition: Disposition = Disposition.DEFAULT,
        if_lost: IfLost = IfLost.FAIL,
        wants_progress: bool = False,
        only: PeerId | None = None,
        reports_sent: bool = True,
    ) -> OutgoingMessage:
        """Send a message; `on_step` gets its states, and exactly one end."""
        self._refresh()
        message = SwitchMessage(
            MessageId(self.runtime.peer_id, next(self._counter)),
            message_class,
            scope,
            recipient,
            self.session,
            file,
            operation,
            data,
            self.program,
            MessageState.SENT,
            disposition,
            if_lost,
            wants_progress,
        )
        if self.runtime.observer is not None:
            on_step = recorded_steps(self.runtime.observer, message, timeout_s, on_step)
            reports_sent = True
        return self.sender.send(message, timeout_s, on_step, only, reports_sent=reports_sent)

    def handler_ids(self, operation: str, scope: Scope, file: str) -> list[PeerId]:
        """The programs that run and handle this operation, for `request_all`."""
        self._refresh()
        message = SwitchMessage(
            MessageId(self.runtime.peer_id, 0),
            MessageClass.REQUEST,
            scope,
            Recipient.HANDLER,
            self.session,
            file,
            operation,
            b"",
        )
        found = [each for each in self.directory.find_handlers(message) if not each.pattern.program]
        return list(dict.fromkeys(each.peer_id for each in found))

    # -- for the parts

    def accept_own(self, out: OutgoingMessage, candidate: IndexedPattern, timeout_s: float, respond: Respond) -> None:
        """The candidate is this program itself."""

        def on_progress(state: MessageState, program: str) -> None:
            self.sender.on_progress(self.runtime.peer_id, out.message.id.counter, state, program)

        message, program = out.message._replace(recipient=Recipient.HANDLER), candidate.pattern.program
        if program:
            held = self.host.accept(message, program, timeout_s, respond, on_progress)
            if held is not None and out.candidate is candidate and not out.ended:
                out.cancel = lambda: self.host.cancel(held)
            return
        call = self.handlers.accept(message, self.runtime.peer_id, timeout_s, respond, on_progress)
        if call is not None and out.candidate is candidate and not out.ended:
            out.cancel = call.cancel

    def send_queued_result(self, message: SwitchMessage, result: Result) -> None:
        if message.sender == self.runtime.peer_id:
            self.sender.on_queued_result(self.runtime.peer_id, message.id.counter, result)
        else:
            self.runtime.tell(message.sender, encode(QueuedResult(message.id.counter, result)))

    def _on_directory_changed(self) -> None:
        if not self._is_closed:
            self.sender.on_directory_changed()
            self.host.on_directory_changed()
            unchecked, self._unchecked = self._unchecked, []
            for incoming, copy in unchecked:
                if not incoming.is_done:
                    self._on_handler_copy(incoming, copy)
            for listener in tuple(self.listeners):
                listener()

    # -- called by the runtime

    def on_broadcast(self, author: PeerId, data: bytes) -> None:
        if self._is_closed:
            return
        try:
            message = decode(data)
        except WireError:
            self.malformed_count += 1
            return
        if isinstance(message, Announcement):
            self.directory.on_announcement(author, message)
            if message.is_first and self.runtime.now() < self._started_at + settings.YOUNG_S:
                next_at = self._announced_at + settings.REANNOUNCE_S
                self._schedule_announcement(max(settings.ANNOUNCE_DELAY_S, next_at - self.runtime.now()))
        elif isinstance(message, ObserverCopy):
            if message.message.sender == author and self._is_session_of(author, message.message.session):
                self.observers.deliver(message.message)
            else:
                self.forged_count += 1

    def on_request(self, incoming: IncomingRequest) -> None:
        """A direct request, or a one-way message."""
        try:
            message = decode(incoming.data)
        except WireError as problem:
            self.malformed_count += 1
            incoming.refuse(RequestStatus.FAILED, f"malformed: {problem}")
            incoming.done()
            return
        match message:
            case HandlerCopy() if incoming.expects_reply:
                self._on_handler_copy(incoming, message)
                return
            case RecordsRequest() if incoming.expects_reply:
                incoming.reply(encode(self.directory.records()))
            case QueueLengthsRequest() if incoming.expects_reply:
                incoming.reply(encode(QueueLengths(self.host.lengths())))
            case Progress():
                self.sender.on_progress(incoming.peer_id, message.counter, message.state, message.handler_program)
            case QueuedResult():
                result = message.result
                self.forged_count += not self.sender.on_queued_result(incoming.peer_id, message.counter, result)
            case _:
                self.malformed_count += 1
        incoming.done()

    def _on_handler_copy(self, incoming: IncomingRequest, copy: HandlerCopy) -> None:
        def respond(result: Result) -> None:
            try:
                incoming.reply(encode(HandlerResult(result)))
            except WireError as problem:
                incoming.reply(encode(HandlerResult(failed(FailureReason.TOO_LARGE, str(problem)))))
            incoming.done()

        peer_id = incoming.peer_id
        is_unknown = self.directory.get(peer_id) is None and not self.directory.is_complete
        if copy.message.sender != peer_id and (is_unknown or self._unchecked):
            # It may be the host that started this program, whose registration is on its way. Later ones keep the order.
            self._unchecked.append((incoming, copy))
            incoming.on_cancel = incoming.done
            return
        problem = self._problem_of(peer_id, copy)
        if problem is not None:
            self.forged_count += 1
            respond(declined(FailureReason.NOT_ALLOWED, problem))
            return
        message = copy.message
        timeout_s = copy.timeout_ms / 1000

        def on_progress(state: MessageState, program: str) -> None:
            self.runtime.tell(incoming.peer_id, encode(Progress(message.id.counter, state, program)))

        if copy.program and copy.program != self.program:
            held = self.host.accept(message, copy.program, timeout_s, respond, on_progress)
            if held is not None and not incoming.is_done:
                incoming.on_cancel = lambda: self._cancel(incoming, lambda: self.host.cancel(held))
            return
        call = self.handlers.accept(message, incoming.peer_id, timeout_s, respond, on_progress)
        if call is not None and not incoming.is_done:
            incoming.on_cancel = lambda: self._cancel(incoming, call.cancel)

    def _cancel(self, incoming: IncomingRequest, cancel: Callable[[], None]) -> None:
        cancel()
        incoming.done()

    def _problem_of(self, peer_id: PeerId, copy: HandlerCopy) -> str | None:
        """Why this peer may not send this copy."""
        message = copy.message
        if message.sender == peer_id:
            if self._is_session_of(peer_id, message.session):
                return None
            return f"the session {message.session!r} is not that of the sender's ticket"
        host = self.directory.get(peer_id)
        is_host = host is not None and any(pattern.program == copy.program for pattern in host.patterns)
        if not self.program or copy.program != self.program or host is None or not is_host:
            return "a copy in the name of another member"
        if message.scope.is_local and host.session != self.session:
            return "a copy of another session"
        return None

    def _is_session_of(self, peer_id: PeerId, session: str) -> bool:
        """Whether a member may speak for this session. On a channel with tickets, only members of the roster may."""
        registered = self.directory.get(peer_id)
        if registered is not None and registered.session == session:
            return True  # verified when the registration came
        member = self.runtime.member(peer_id)
        if member is None:
            own = self.runtime.member(self.runtime.peer_id)
            return own is None or not own.is_proven
        return is_own_session(session, member.name if member.is_proven else None)

    def on_member_joined(self, peer_id: PeerId) -> None:
        self.directory.on_member_joined(peer_id)

    def on_member_gone(self, peer_id: PeerId) -> None:
        self.directory.on_member_gone(peer_id)
        self.sender.on_member_gone(peer_id)

    def on_missed(self, author: PeerId) -> None:
        self.directory.on_missed(author)
