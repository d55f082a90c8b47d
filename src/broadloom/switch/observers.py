"""The observers of this program, and copies of what it sends for observers anywhere on the channel."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from broadloom.switch.codec import ObserverCopy, encode
from broadloom.switch.model import PROGRESS_STATES, Dispatch, Pattern, Recipient, SwitchMessage

if TYPE_CHECKING:
    from broadloom.switch.directory import Directory
    from broadloom.switch.runtime import SwitchRuntime


class ObserverEntry:
    """A registered observer: its pattern and where copies go."""

    def __init__(self, pattern: Pattern, deliver: Callable[[SwitchMessage], None]) -> None:
        self.pattern = pattern
        self.deliver = deliver


class Observers:
    def __init__(
        self, runtime: "SwitchRuntime", directory: "Directory", matches: Callable[[Pattern, SwitchMessage], bool]
    ) -> None:
        self._runtime = runtime
        self._directory = directory
        self._matches = matches
        self._entries: dict[ObserverEntry, None] = {}

    def __iter__(self) -> Iterator[ObserverEntry]:
        return iter(self._entries)

    def add(self, entry: ObserverEntry) -> None:
        self._entries[entry] = None

    def remove(self, entry: ObserverEntry) -> None:
        self._entries.pop(entry, None)

    def deliver(self, copy: SwitchMessage) -> bool:
        """Give a copy to the observers of this program; returns whether there are any."""
        matching = [each for each in self._entries if self._matches(each.pattern, copy)]
        for each in matching:
            each.deliver(copy)
        return bool(matching)

    @property
    def may_exist(self) -> bool:
        """False if nobody on the channel observes anything, as far as is known."""
        return bool(self._directory.observers) or not self._directory.is_complete

    def send_copies(self, message: SwitchMessage, dispatches: list[Dispatch]) -> bool:
        """Copies for all observers, here and elsewhere; returns whether there are any."""
        if not self.may_exist or message.recipient is Recipient.HANDLER:
            return False
        copy = message._replace(recipient=Recipient.OBSERVERS)
        is_observed = self.deliver(copy)
        remote = self._directory.remote_observers(copy)
        now = self._runtime.now()
        known = [each.peer_id for each in dispatches if each.recipient is Recipient.OBSERVERS]
        dispatches += [
            Dispatch(peer_id, session, Recipient.OBSERVERS, now)
            for peer_id, session in remote.items()
            if peer_id not in known
        ]
        if remote or not self._directory.is_complete:
            self._runtime.broadcast(encode(ObserverCopy(copy)))
        return is_observed or bool(remote)

    def followed(self, message: SwitchMessage) -> SwitchMessage:
        """The message, of which handlers report the progress if an observer asks for it."""
        is_observed = any(self._directory.is_observed(message._replace(state=state)) for state in PROGRESS_STATES)
        return message._replace(wants_progress=True) if is_observed else message
