"""`weft web`: its words, and how the pages are served from the command line."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.commands.options import Joining, joins

if TYPE_CHECKING:
    from weft.commands.ending import End

PASSWORD_VARIABLE = "WEFT_WEB_PASSWORD"


@joins
def web(
    joining: Joining,
    channel: Annotated[str, typer.Argument(help="A channel to take part in, as `chess/club-42`.")] = "",
    tape: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A tape, or a folder of tapes, to replay.", show_default=False)
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The results of `weft pipeline run --out`.", show_default=False),
    ] = None,
    at: Annotated[
        str,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Where the pages are served. Any host but this machine needs a password. Port 0 takes a free one.",
        ),
    ] = "127.0.0.1:8470",
    password: Annotated[
        str | None,
        typer.Option(
            help=f"Asked for before any page. Better in `{PASSWORD_VARIABLE}`: others on this machine see the words of "
            "a command.",
            show_default=False,
        ),
    ] = None,
    browser: Annotated[bool, typer.Option("--open", help="Open the first page in the browser.")] = False,
) -> None:
    """Show a channel, tapes and tables in the browser, until Ctrl-C.

    A channel is joined as one more peer: the pages show what that peer may know. Needs the extra `web`. For peers to
    kill, see `weft demo`.

    Examples:

    - `weft web chess/club-42`
    - `weft web --tape tapes`
    - `weft web --tape tapes --tables results --open`
    - `WEFT_WEB_PASSWORD=… weft web news/today --at 0.0.0.0:8470`
    """
    from weft.commands.ending import run
    from weft.commands.errors import Mistake

    async def work(end: "End") -> int:
        if not channel and tape is None and tables is None:
            raise Mistake("there is nothing to show: name a channel, or give --tape or --tables")
        if tape is not None and not tape.is_dir():
            raise Mistake(f"there is no folder {tape}; a tape is made by weft record --to, or by weft sim --tape")
        host, port = _address(at)
        words = {
            "tape": tape,
            "tables": tables,
            "host": host,
            "port": port,
            "password": password if password is not None else os.environ.get(PASSWORD_VARIABLE),
            "on_ready": lambda url: _ready(url, browser),
        }
        return await _serve(end, channel, joining, words)

    raise typer.Exit(run("web", work))


async def _serve(end: "End", name: str, joining: Joining, words: dict[str, Any]) -> int:
    from weft.commands.errors import Mistake
    from weft.commands.taking_part import taking_part
    from weft.web.serve import CannotServe, check, serve

    try:
        check(words["host"], words["password"])
        if not name:
            end.by_hand_is_fine = True
            await serve(**words)
            return 0
        from weft.web.heard import Heard

        heard = Heard()
        async with taking_part(name, joining, end, tape=heard) as channel:
            heard.channel = channel
            end.by_hand_is_fine = True
            await serve(channel=channel, heard=heard, **words)
    except CannotServe as problem:
        raise Mistake(str(problem)) from None
    return 0


def _ready(url: str, opens: bool) -> None:
    from weft.commands.ending import hint

    print(url, flush=True)
    hint("Ctrl-C ends it.")
    if opens:
        import webbrowser

        # In a thread: some browsers are waited for.
        asyncio.get_running_loop().run_in_executor(None, webbrowser.open, url)


def _address(text: str) -> tuple[str, int]:
    from weft.commands.errors import Mistake

    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise Mistake(f"--at takes a port, or host:port, as in 127.0.0.1:8470, not {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)
