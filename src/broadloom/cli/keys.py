"""`broadloom key` and `broadloom ticket`: who may take part.

The rule: a secret is printed only where it was asked for (a new key), and a file with one is never written over.
"""

import json as json_module
from datetime import UTC, datetime, timedelta
from pathlib import Path

from broadloom.cli.exit_codes import FAILURE, SUCCESS, UsageError
from broadloom.cli.runner import run_reporting_errors


def key(authority_file: Path | None, channel: str) -> int:
    return run_reporting_errors(
        "key", lambda: _authority(authority_file, channel) if authority_file is not None else _key(channel)
    )


def issue(authority_file: Path, *, name: str, role: str, days: float, out: Path | None) -> int:
    return run_reporting_errors("ticket issue", lambda: _issue(authority_file, name, role, days, out))


def show(file: Path, *, json: bool) -> int:
    return run_reporting_errors("ticket show", lambda: _show(file, json))


def revoke(authority_file: Path, *, revocation_list: Path, tickets: list[str]) -> int:
    return run_reporting_errors("ticket revoke", lambda: _revoke(authority_file, revocation_list, tickets))


def _key(channel: str) -> int:
    from broadloom.security import generate_key

    if channel:
        raise UsageError("--channel belongs to --owner: a shared key fits every channel")
    print(generate_key())
    return SUCCESS


def _authority(file: Path, channel: str) -> int:
    from broadloom.protocol import ChannelName
    from broadloom.security import Authority

    try:
        channel_id = ChannelName.parse(channel).id if channel else None
    except ValueError as problem:
        raise UsageError(str(problem)) from None
    Authority.generate(channel_id).save(file)
    scope = f"for {channel}" if channel else "for any channel"
    print(f"{file}: authority {scope}. Keep it secret, and a copy in a safe place; it issues tickets.")
    return SUCCESS


def _issue(authority_file: Path, name: str, role: str, days: float, out: Path | None) -> int:
    from broadloom.protocol.identity import Role
    from broadloom.security import Authority, InvalidKeyError

    if out is None:
        if Path(name).name != name:
            raise UsageError(f"{name!r} is no name for a file: say where to write the ticket with --out")
        out = Path(f"{name}.ticket")
    authority = Authority.load(authority_file)
    try:
        ticket = authority.issue_ticket(name, Role(role), datetime.now(UTC) + timedelta(days=days))
    except InvalidKeyError:
        raise
    except ValueError as problem:
        raise UsageError(str(problem)) from None
    ticket.save(out)
    print(
        f"{out}: ticket {ticket.serial} for {name}, {role}, until {_format_minute(ticket.expires_at)}. "
        f"Its holder is {name}."
    )
    return SUCCESS


def _show(file: Path, json: bool) -> int:
    from broadloom.cli.formatting import escape_control_chars
    from broadloom.security import Ticket

    ticket = Ticket.load(file)
    expired = ticket.is_expired(datetime.now(UTC))
    if json:
        fields = {
            "name": ticket.name,
            "role": ticket.role.value,
            "serial": ticket.serial,
            "expires": ticket.expires_at.isoformat(),
            "expired": expired,
        }
        print(json_module.dumps(fields, ensure_ascii=False))
    else:
        print(f"name     {escape_control_chars(ticket.name)}")
        print(f"role     {ticket.role.value}")
        print(f"serial   {ticket.serial}")
        print(f"expires  {_format_minute(ticket.expires_at)}{' (it has expired)' if expired else ''}")
    return FAILURE if expired else SUCCESS


def _revoke(authority_file: Path, revocation_list: Path, tickets: list[str]) -> int:
    from broadloom.security import Authority, InvalidKeyError, Ticket, revoke_tickets

    authority = Authority.load(authority_file)
    serials = []
    for each in tickets:
        if not Path(each).is_file():
            serials.append(each)
            continue
        ticket = Ticket.load(Path(each))
        if ticket.authority != authority.certificate:
            raise UsageError(f"{each} is a ticket of another owner than {authority_file}")
        serials.append(ticket.serial)
    try:
        revoke_tickets(authority, revocation_list, serials)
    except InvalidKeyError:
        raise
    except ValueError as problem:
        raise UsageError(f"{problem} (and there is no ticket file of that name)") from None
    print(
        f"{revocation_list}: withdrawn {', '.join(serials)}. Give the list to the members: --revoked {revocation_list}"
    )
    return SUCCESS


def _format_minute(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"
