"""What this server shows: one thing that goes on (a lab, or a channel), tapes, and tables.

Pages and the data behind them get everything from here, and nothing by a path that a browser names.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from weft.errors import WeftError
from weft.web.following import Following
from weft.web.heard import Heard
from weft.web.history import History
from weft.web.shelf import Shelf
from weft.web.talking import Talking

if TYPE_CHECKING:
    from weft.channel import Channel
    from weft.lab.lab import Lab
    from weft.web.replay import Replay

LIVE = "live"
"""Name of what goes on, beside the names of tapes."""
REPLAYS_KEPT_MAX = 3
"""Tapes held in memory; whoever opens another has the one that was looked at longest ago read again."""


class NoSource(WeftError):
    """The text says what there is."""


class Sources:
    def __init__(
        self,
        *,
        lab: "Lab | None" = None,
        channel: "Channel | None" = None,
        heard: "Heard | None" = None,
        tape: Path | None = None,
        tables: Path | None = None,
        progress: Callable[[], str] | None = None,
    ) -> None:
        self.lab = lab
        self.channel = channel if lab is None else None
        self.tape = tape
        self.shelf = Shelf(tables) if tables is not None else None
        self.progress: Callable[[], str] = progress or (lambda: "")
        self.talking = Talking(lab=lab, channel=self.channel, on_joined=self._on_joined)
        self.live: Following | None = None
        self._replays: OrderedDict[str, Replay] = OrderedDict()
        self._reading: dict[str, asyncio.Task[Replay]] = {}
        if lab is not None:
            self.live = Following(lab)
        elif channel is not None:
            heard = heard or Heard(channel)
            self.live = Following(heard, settle_s=0.0, sees_all=False)
        self.heard = heard

    def _on_joined(self, peer: int) -> None:
        if self.lab is not None and self.live is not None:
            self.live.welcome(peer, "this page")

    @property
    def sentence(self) -> str:
        """What the pages see of what goes on."""
        if self.lab is not None:
            return "All peers that this program started, in its processes on this machine: nothing is hidden."
        if self.channel is not None:
            return (
                f"What one peer of {self.channel.name} may know: itself, its neighbours, and whom they say they are "
                "linked to. Nobody sees the whole."
            )
        return "Nothing goes on here: what there is was recorded."

    # -- tapes

    def tapes(self) -> dict[str, Path]:
        """Those that can be replayed, by name."""
        from weft.web.replay import tapes_in

        folders = [self.tape, self.lab.tape if self.lab is not None else None]
        found: dict[str, Path] = {}
        for folder in folders:
            if folder is not None:
                for each in tapes_in(folder):
                    found.setdefault(_name(each, found), each)
        return found

    async def replay(self, name: str) -> "Replay":
        """A tape, read in a thread; once for all who ask."""
        if name in self._replays:
            self._replays.move_to_end(name)
            return self._replays[name]
        if name not in self._reading:
            path = self.tapes().get(name)
            if path is None:
                raise NoSource(f"there is no tape {name!r} here; there are: {', '.join(self.tapes()) or 'none'}")
            self._reading[name] = asyncio.create_task(self._read(name, path))
        return await asyncio.shield(self._reading[name])

    async def _read(self, name: str, path: Path) -> "Replay":
        from weft.web.replay import replay

        try:
            read = await asyncio.to_thread(replay, path)
        finally:
            del self._reading[name]
        self._replays[name] = read
        while len(self._replays) > REPLAYS_KEPT_MAX:
            self._replays.popitem(last=False)
        return read

    def forget(self, name: str) -> None:
        """So that a tape that grows is read anew."""
        self._replays.pop(name, None)

    async def close(self) -> None:
        for task in self._reading.values():
            task.cancel()
        await self.talking.close()

    # -- histories

    async def history(self, name: str) -> History:
        if name != LIVE:
            return (await self.replay(name)).history
        if self.live is None:
            raise NoSource("nothing goes on here: there are only tapes, on the page Replay")
        return self.live.history


def _name(path: Path, taken: dict[str, Path]) -> str:
    """Short and not taken."""
    name, number = path.name or "tape", 1
    while (name in taken and taken[name] != path) or name == LIVE:
        number += 1
        name = f"{path.name}-{number}"
    return name
