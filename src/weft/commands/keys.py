"""`weft key` and `weft ticket`: who may take part.

The rule: a secret is printed only where it was asked for (a new key), and a file with one is never written over.
"""

import json as json_module
from datetime import UTC, datetime, timedelta
from pathlib import Path

from weft.commands.ending import told
from weft.commands.errors import FAILED, FINE, Mistake


def key(owner: Path | None, channel: str) -> int:
    return told("key", lambda: _authority(owner, channel) if owner is not None else _key(channel))


def issue(owner: Path, *, name: str, role: str, days: float, out: Path | None) -> int:
    return told("ticket issue", lambda: _issue(owner, name, role, days, out))


def show(file: Path, *, json: bool) -> int:
    return told("ticket show", lambda: _show(file, json))


def revoke(owner: Path, *, list_file: Path, tickets: list[str]) -> int:
    return told("ticket revoke", lambda: _revoke(owner, list_file, tickets))


def _key(channel: str) -> int:
    from weft.security import new_key

    if channel:
        raise Mistake("--channel belongs to --owner: a shared key fits every channel")
    print(new_key())
    return FINE


def _authority(file: Path, channel: str) -> int:
    from weft.fabric import ChannelName
    from weft.security import Authority

    try:
        channel_id = ChannelName.parse(channel).id if channel else None
    except ValueError as problem:
        raise Mistake(str(problem)) from None
    Authority.new(channel_id).save(file)
    scope = f"for {channel}" if channel else "for any channel"
    print(f"{file}: authority {scope}. Keep it secret, and a copy in a safe place; it issues tickets.")
    return FINE


def _issue(owner: Path, name: str, role: str, days: float, out: Path | None) -> int:
    from weft.fabric.seal import Role
    from weft.security import Authority, BadKey

    if out is None:
        if Path(name).name != name:
            raise Mistake(f"{name!r} is no name for a file: say where to write the ticket with --out")
        out = Path(f"{name}.ticket")
    authority = Authority.load(owner)
    try:
        ticket = authority.issue_ticket(name, Role(role), datetime.now(UTC) + timedelta(days=days))
    except BadKey:
        raise
    except ValueError as problem:
        raise Mistake(str(problem)) from None
    ticket.save(out)
    print(f"{out}: ticket {ticket.serial} for {name}, {role}, until {_minute(ticket.expires)}. Its holder is {name}.")
    return FINE


def _show(file: Path, json: bool) -> int:
    from weft.commands.telling import harmless
    from weft.security import Ticket

    ticket = Ticket.load(file)
    expired = ticket.is_expired(datetime.now(UTC))
    if json:
        told_of = {
            "name": ticket.name,
            "role": ticket.role.value,
            "serial": ticket.serial,
            "expires": ticket.expires.isoformat(),
            "expired": expired,
        }
        print(json_module.dumps(told_of, ensure_ascii=False))
    else:
        print(f"name     {harmless(ticket.name)}")
        print(f"role     {ticket.role.value}")
        print(f"serial   {ticket.serial}")
        print(f"expires  {_minute(ticket.expires)}{' (it has expired)' if expired else ''}")
    return FAILED if expired else FINE


def _revoke(owner: Path, list_file: Path, tickets: list[str]) -> int:
    from weft.security import Authority, BadKey, Ticket, revoke

    authority = Authority.load(owner)
    serials = []
    for each in tickets:
        if not Path(each).is_file():
            serials.append(each)
            continue
        ticket = Ticket.load(Path(each))
        if ticket.authority != authority.certificate:
            raise Mistake(f"{each} is a ticket of another owner than {owner}")
        serials.append(ticket.serial)
    try:
        revoke(authority, list_file, serials)
    except BadKey:
        raise
    except ValueError as problem:
        raise Mistake(f"{problem} (and there is no ticket file of that name)") from None
    print(f"{list_file}: withdrawn {', '.join(serials)}. Give the list to the members: --revoked {list_file}")
    return FINE


def _minute(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"
