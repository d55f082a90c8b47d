"""Who records what a peer sees. A peer without an observer pays one comparison a message for it."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from weft.fabric.channel_id import ChannelName
    from weft.fabric.events import Batch, Event, Missed
    from weft.wire import Broadcast, PeerId


class Observer(Protocol):
    """Told of everything at the moment it happens; must return quickly and never raise."""

    def sent(self, sequence: int, data: bytes) -> None:
        """This peer broadcast a message."""

    def received(self, message: "Broadcast", neighbour: "PeerId") -> None:
        """The first copy of one or more messages came, from this neighbour."""

    def delivered(self, batch: "Batch") -> None:
        """The application was handed messages."""

    def missed(self, missed: "Missed") -> None:
        """The application was told what it will not get."""

    def happened(self, event: "Event") -> None:
        """State and neighbours."""

    def duplicates(self, count: int) -> None:
        """So many further copies came since this was told last (about once a second, not if none)."""


class Tape(Protocol):
    """What makes observers: the recorder (`weft.record.Tape`), or anything that does the same."""

    def observer(self, channel: "ChannelName", me: "PeerId") -> Observer: ...
