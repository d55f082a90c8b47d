"""`Member`: one entry of the roster as applications see it, and the events about its members."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from broadloom.protocol.identity import Role
from broadloom.wire.types import Address, PeerId


@dataclass(frozen=True, slots=True)
class Member:
    """A program on the channel."""

    peer_id: PeerId
    name: str
    """The name on its ticket; else the name that it chose, or an empty string."""
    role: Role | None
    """The role on its ticket; None without tickets."""
    is_proven: bool
    """Whether name and role are on a ticket, which only the owner of the channel can issue."""
    address: Address
    """Where it listens: for links, and for direct requests."""
    ticket_serial: str = ""
    layers: tuple[str, ...] = ()
    """Marks of the layers that it receives."""
    is_secondary: bool = False
    """A further peer of a program that takes part with several (`local_peers`)."""

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON-serializable values, with the id in hex."""
        return {**asdict(self), "peer_id": str(self.peer_id), "address": str(self.address)}


class LossCause(StrEnum):
    DEAD = "dead"
    """Its neighbors' connections to it were closed, and it did not announce that it leaves."""
    UNREACHABLE = "unreachable"
    """It became silent: its host crashed, it does not respond, or the network is partitioned."""


class MemberJoined(NamedTuple):
    """A member is in the roster now; also reported for those that were there before this program."""

    member: Member


class MemberLeft(NamedTuple):
    """A member left gracefully."""

    member: Member


class MemberLost(NamedTuple):
    """A member is gone without leaving."""

    member: Member
    cause: LossCause


class Partitioned(NamedTuple):
    """Several members became unreachable together. `MemberLost` was reported for each."""

    members: tuple[Member, ...]


class Merged(NamedTuple):
    """Members from a `Partitioned` event can be reached again. `MemberJoined` was reported for each."""

    members: tuple[Member, ...]


MemberEvent = MemberJoined | MemberLeft | MemberLost | Partitioned | Merged
