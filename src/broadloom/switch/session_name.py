"""The session of a program: given, from its environment, from its ticket, or made of login name and host."""

import getpass
import os
import socket
from typing import TYPE_CHECKING

from broadloom.errors import NotPermittedError
from broadloom.switch.directory import is_own_session
from broadloom.switch.launcher import SESSION_VARIABLE
from broadloom.switch.patterns import names

if TYPE_CHECKING:
    from broadloom.channel import Channel


def own_session(channel: "Channel", session: str | None) -> str:
    identity = channel.identity(channel.peer_id)
    proven = identity.name if identity is not None and identity.ticket_serial else None
    if session is None:
        session = os.environ.get(SESSION_VARIABLE) or proven or f"{_login_name()}@{socket.gethostname()}"
    names("session", session)
    if not is_own_session(session, proven):
        raise NotPermittedError(
            f"session={session!r}: the ticket has the name {proven!r}, so the session must be {proven!r} or begin with "
            f"'{proven}/'"
        )
    return session


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # the user ID has no name, as in many containers
        return "unnamed"
