"""`broadloom status` and `broadloom watch`: the peers of this user on this machine, once or again and again."""

import json as json_module
import sys
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

from broadloom.channel.status_socket import LocalPeer, PeerExitedError, StatusClient, StatusJson, require_local_peers
from broadloom.cli.exit_codes import SUCCESS, UsageError
from broadloom.cli.runner import print_error, run_reporting_errors

if TYPE_CHECKING:
    from rich.console import Console


def status(channel: str, *, peer: str, json: bool) -> int:
    return run_reporting_errors("status", lambda: _status(channel, peer, json))


def watch(channel: str, *, peer: str, every_s: float, once: bool) -> int:
    return run_reporting_errors("watch", lambda: _watch(channel, peer, every_s, once))


def _status(channel: str, peer: str, json: bool) -> int:
    found = require_local_peers(channel, peer)
    if json:
        for each in found:
            fields = each.status if each.status is not None else {"peer_id": each.peer_id, "error": "does not answer"}
            print(json_module.dumps(fields, ensure_ascii=False))
        sys.stdout.flush()
        return SUCCESS
    from broadloom.cli.view import peers_table, render_peer

    first = found[0].status
    _console().print(render_peer(first) if len(found) == 1 and first is not None else peers_table(found))
    return SUCCESS


def _watch(channel: str, peer: str, every_s: float, once: bool) -> int:
    chosen = _single_peer(require_local_peers(channel, peer))
    try:
        client = StatusClient(chosen.path)
        try:
            _watch_loop(client, every_s, once)
        finally:
            client.close()
    except PeerExitedError:
        print_error("watch", f"the peer {chosen.peer_id} has left")
    except TimeoutError:
        print_error("watch", f"the peer {chosen.peer_id} does not answer any more")
        return 1
    except KeyboardInterrupt:
        pass  # the usual end
    return SUCCESS


def _single_peer(found: list[LocalPeer]) -> LocalPeer:
    if len(found) == 1:
        return found[0]
    from broadloom.cli.view import peers_table

    _console(stderr=True).print(peers_table(found))
    raise UsageError("several peers run here: name the one to watch by its channel, or by --peer and the first digits")


def _watch_loop(client: StatusClient, every_s: float, once: bool) -> None:
    """On a terminal one picture that changes; else picture after picture."""
    from rich.live import Live

    from broadloom.cli.view import render_peer

    console = _console()
    live = Live(console=console, auto_refresh=False, screen=False) if console.is_terminal and not once else None
    before: StatusJson | None = None
    then = 0.0
    with live if live is not None else nullcontext():
        while True:
            now, seen = time.monotonic(), client.request_status()
            rendered = render_peer(seen, before, now - then)
            if live is not None:
                live.update(rendered, refresh=True)
            else:
                console.print(rendered)
            if once:
                return
            before, then = seen, now
            time.sleep(every_s)


def _console(*, stderr: bool = False) -> "Console":
    from rich.console import Console

    # In a file or a pipe nothing is cut off at the width of a terminal that is not there.
    is_terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, highlight=False, width=None if is_terminal else 200)
