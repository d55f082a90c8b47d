"""What a switch reports about itself."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from broadloom.switch.model import SwitchMessage

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
