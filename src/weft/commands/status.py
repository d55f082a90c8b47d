"""`weft status` and `weft watch`: the peers of this user on this machine, once or again and again."""

import json as json_module
import sys
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

from weft.commands.ending import complain, told
from weft.commands.errors import FINE, Mistake
from weft.commands.peers_here import Gone, Line, PeerHere, Told, some_peers_here

if TYPE_CHECKING:
    from rich.console import Console


def status(channel: str, *, peer: str, json: bool) -> int:
    return told("status", lambda: _status(channel, peer, json))


def watch(channel: str, *, peer: str, every_s: float, once: bool) -> int:
    return told("watch", lambda: _watch(channel, peer, every_s, once))


def _status(channel: str, peer: str, json: bool) -> int:
    found = some_peers_here(channel, peer)
    if json:
        for each in found:
            answer = each.told if each.told is not None else {"peer": each.peer, "error": "does not answer"}
            print(json_module.dumps(answer, ensure_ascii=False))
        sys.stdout.flush()
        return FINE
    from weft.commands.view import peer_picture, peers_table

    first = found[0].told
    _console().print(peer_picture(first) if len(found) == 1 and first is not None else peers_table(found))
    return FINE


def _watch(channel: str, peer: str, every_s: float, once: bool) -> int:
    chosen = _one_of(some_peers_here(channel, peer))
    try:
        line = Line(chosen.path)
        try:
            _look_again_and_again(line, every_s, once)
        finally:
            line.close()
    except Gone:
        complain("watch", f"the peer {chosen.peer} has left")
    except TimeoutError:
        complain("watch", f"the peer {chosen.peer} does not answer any more")
        return 1
    except KeyboardInterrupt:
        pass  # the usual end
    return FINE


def _one_of(found: list[PeerHere]) -> PeerHere:
    if len(found) == 1:
        return found[0]
    from weft.commands.view import peers_table

    _console(stderr=True).print(peers_table(found))
    raise Mistake("several peers run here: name the one to watch by its channel, or by --peer and the first digits")


def _look_again_and_again(line: Line, every_s: float, once: bool) -> None:
    """On a terminal one picture that changes; else picture after picture."""
    from rich.live import Live

    from weft.commands.view import peer_picture

    console = _console()
    live = Live(console=console, auto_refresh=False, screen=False) if console.is_terminal and not once else None
    before: Told | None = None
    then = 0.0
    with live if live is not None else nullcontext():
        while True:
            now, seen = time.monotonic(), line.ask()
            picture = peer_picture(seen, before, now - then)
            if live is not None:
                live.update(picture, refresh=True)
            else:
                console.print(picture)
            if once:
                return
            before, then = seen, now
            time.sleep(every_s)


def _console(*, stderr: bool = False) -> "Console":
    from rich.console import Console

    # In a file or a pipe nothing is cut off at the width of a terminal that is not there.
    is_terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, highlight=False, width=None if is_terminal else 200)
