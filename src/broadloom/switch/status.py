"""What a switch reports about itself."""

import asyncio
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from broadloom.protocol.requests.outgoing import Outcome, OutcomeKind
from broadloom.switch import settings
from broadloom.switch.codec import QueueLength, QueueLengths, QueueLengthsRequest, decode, encode
from broadloom.switch.model import SwitchMessage
from broadloom.wire import PeerId, WireError

if TYPE_CHECKING:
    from broadloom.switch.core import SwitchCore


@dataclass(frozen=True, slots=True)
class SwitchStatus:
    """Returned by `Switch.status`."""

    session: str
    program: str
    is_complete: bool
    """Whether the registrations of all members are known."""
    open_count: int
    """Messages of this program that have not ended."""
    queued_count: int
    """Messages that wait here until their program runs."""
    discarded_count: int
    """Notices of this program that nobody got."""
    uncertain_count: int
    """Queued messages that may have been handled before a crash, and were not repeated."""
    malformed_count: int
    forged_count: int
    """What others sent in a name that is not theirs; it was ignored."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A message that waits for a program, as `Switch.queue` lists it."""

    program: str
    message: SwitchMessage
    is_shared: bool
    """Whether it is about a file, and so also for programs of other sessions."""


@dataclass(frozen=True, slots=True)
class ProgramQueue:
    """What waits at one member for programs of one type, as `Switch.queues` lists it."""

    peer_id: PeerId
    """The member that holds the queue."""
    session: str
    program: str
    count: int | None
    """Messages that wait; None if the member did not answer."""


async def queues_of(core: "SwitchCore", timeout_s: float) -> list[ProgramQueue]:
    """Ask every member that starts or queues for programs; at most `QUEUE_HOSTS_MAX`."""
    hosts = [each for each in core.directory.registrations() if any(pattern.program for pattern in each.patterns)]
    hosts = hosts[: settings.QUEUE_HOSTS_MAX]
    answers = await asyncio.gather(*(_lengths(core, each.peer_id, timeout_s) for each in hosts))
    return [
        ProgramQueue(host.peer_id, host.session, program, lengths.get(program))
        for host, lengths in zip(hosts, answers, strict=True)
        for program in dict.fromkeys(pattern.program for pattern in host.patterns if pattern.program)
    ]


async def _lengths(core: "SwitchCore", peer_id: PeerId, timeout_s: float) -> dict[str, int]:
    if peer_id == core.runtime.peer_id:
        return dict(core.host.lengths())
    ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def on_outcome(outcome: Outcome) -> None:
        if not ended.done():
            ended.set_result(outcome)

    request = core.runtime.request(peer_id, encode(QueueLengthsRequest()), timeout_s, on_outcome)
    try:
        outcome = await ended
    except asyncio.CancelledError:
        core.runtime.give_up(request)
        raise
    return dict(_decoded(outcome.data)) if outcome.kind is OutcomeKind.REPLIED else {}


def _decoded(data: bytes) -> tuple[QueueLength, ...]:
    try:
        message = decode(data)
    except WireError:
        return ()
    return message.lengths if isinstance(message, QueueLengths) else ()


def status_of(core: "SwitchCore") -> SwitchStatus:
    return SwitchStatus(
        session=core.session,
        program=core.program,
        is_complete=core.directory.is_complete,
        open_count=len(core.sender),
        queued_count=len(core.host.queued()),
        discarded_count=core.sender.discarded_count,
        uncertain_count=core.host.uncertain_count,
        malformed_count=core.malformed_count,
        forged_count=core.forged_count + core.directory.rejected_count,
    )


def queued_messages(core: "SwitchCore") -> list[QueuedMessage]:
    return [QueuedMessage(each.program, each.message, not each.message.scope.is_local) for each in core.host.queued()]
