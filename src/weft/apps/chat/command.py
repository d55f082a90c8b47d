"""What `weft chat` does, once the channel is joined; and `weft chat export`, which joins nothing."""

import logging
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from weft.apps.chat.stores import Kept, NotUsable, open_kept, open_to_read

if TYPE_CHECKING:
    from weft.apps.chat.talks import Talks
    from weft.channel import Channel

log = logging.getLogger("weft")


class _ToTheScreen(logging.Handler):
    """Warnings of the library are shown in the chat, not written over it."""

    def __init__(self, talks: "Talks") -> None:
        super().__init__(logging.WARNING)
        self._talks = talks

    def emit(self, record: logging.LogRecord) -> None:
        self._talks.notice(record.getMessage())


def prepare(channel: str, name: str, store: Path | None, *, memory: bool) -> Kept:
    """All that can be wrong before the channel is joined."""
    try:
        import textual  # noqa: F401
    except ImportError:
        raise NotUsable("the chat needs an extra: pip install 'weft[chat]'") from None
    if not all(stream is not None and stream.isatty() for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__)):
        raise NotUsable("the chat needs a terminal; `weft join` talks over pipes")
    return open_kept(channel, name, store, memory=memory)


async def chat_on(
    channel: "Channel",
    name: str,
    kept: Kept,
    warnings_go_to: Callable[[logging.Handler], AbstractContextManager[None]],
) -> int:
    """Until the person quits; returns the exit code."""
    from weft.apps.chat.app import ChatApp
    from weft.apps.chat.talks import Talks
    from weft.groups import groups

    async with groups(channel, name, store=kept.store) as here:
        talks = Talks(here, kept.reading)
        try:
            with warnings_go_to(_ToTheScreen(talks)):
                app = ChatApp(talks, channel)
                await app.run_async()
            return app.return_code or 0
        finally:
            try:
                talks.close()
            except OSError as problem:
                log.warning("what you have read could not be saved: %s", problem)


def export(group: str, format: str, *, channel: str, name: str, store: Path | None, out: Path | None) -> int:
    from weft.apps.chat.exporting import FORMATS, exported

    write = FORMATS.get(format)
    if write is None:
        raise NotUsable(f"there is no format {format!r}: choose one of {', '.join(FORMATS)}")
    kept = open_to_read(channel, name, store)
    try:
        told = exported(kept, group)
    finally:
        kept.close()
    if out is None:
        sys.stdout.writelines(write(told))
        return 0
    try:
        with out.open("w", encoding="utf-8") as file:
            file.writelines(write(told))
    except OSError as problem:
        raise NotUsable(f"cannot write {out}: {problem.strerror}") from None
    return 0
