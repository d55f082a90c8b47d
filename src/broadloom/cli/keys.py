"""`broadloom key`, `broadloom authority` and `broadloom ticket`: access to a channel.

Only `key generate` prints a secret, and no file with a secret is ever overwritten.
"""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from broadloom.cli.exit_codes import FAILURE, SUCCESS, UsageError
from broadloom.cli.formatting import escape_control_chars
from broadloom.cli.options import JsonOption, command_group, option
from broadloom.cli.output import print_json
from broadloom.cli.runner import reports_errors
from broadloom.protocol import ChannelName
from broadloom.protocol.identity import Role
from broadloom.security import Authority, InvalidKeyError, Ticket, generate_key, revoke_tickets

DAYS = 30.0
DAYS_MAX = 36500.0

key = command_group("Generate shared keys.\n\nExamples:\n\n- `broadloom key generate`")
authority = command_group(
    "Create certificate authorities.\n\n"
    "Examples:\n\n- `broadloom authority create --out club.authority --channel chess/club-42`"
)
ticket = command_group(
    "Issue, show and revoke tickets, which give each member a name, a role and an expiry date.\n\n"
    "Examples:\n\n- `broadloom ticket issue --authority club.authority --name alice`"
)


class RoleChoice(StrEnum):
    producer = "producer"
    consumer = "consumer"


AuthorityOption = Annotated[
    Path, typer.Option("--authority", metavar="FILE", help="The authority file, from `broadloom authority create`.")
]


@key.command("generate")
@reports_errors("key generate")
def generate(json: JsonOption = False) -> int:
    """Generate a shared key for a channel.

    Examples:

    - `export BROADLOOM_KEY=$(broadloom key generate)`
    """
    new_key = generate_key()
    if json:
        print_json({"key": new_key})
    else:
        print(new_key)
    return SUCCESS


@authority.command("create")
@reports_errors("authority create")
def create(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Output file. Keep it secret.")],
    channel: Annotated[str, option("--channel", metavar="CHANNEL", help="Restrict tickets to this channel.")] = "",
    json: JsonOption = False,
) -> int:
    """Create a certificate authority that issues tickets for a channel.

    Examples:

    - `broadloom authority create --out club.authority --channel chess/club-42`
    """
    try:
        channel_id = ChannelName.parse(channel).id if channel else None
    except ValueError as problem:
        raise UsageError(str(problem)) from None
    Authority.generate(channel_id).save(out)
    if json:
        print_json({"file": out, "channel": channel or None})
    else:
        print(f"{out}: authority for {channel or 'any channel'}. Keep it secret, and keep a backup.")
    return SUCCESS


@ticket.command()
@reports_errors("ticket issue")
def issue(
    authority: AuthorityOption,
    name: Annotated[str, typer.Option(help="Name of the member, as other members see it.")],
    role: Annotated[
        RoleChoice, typer.Option(help="Role of the member; a consumer cannot broadcast.")
    ] = RoleChoice.producer,
    days: Annotated[float, typer.Option(min=0, max=DAYS_MAX, metavar="N", help="Days until it expires.")] = DAYS,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Output file.", show_default="NAME.ticket")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Issue a ticket for a member.

    Examples:

    - `broadloom ticket issue --authority club.authority --name alice --role consumer --days 90`
    """
    if out is None:
        if Path(name).name != name:
            raise UsageError(f"{name!r} cannot be a file name: set the output file with --out")
        out = Path(f"{name}.ticket")
    issuer = Authority.load(authority)
    try:
        issued = issuer.issue_ticket(name, Role(role.value), datetime.now(UTC) + timedelta(days=days))
    except InvalidKeyError:
        raise
    except ValueError as problem:
        raise UsageError(str(problem)) from None
    issued.save(out)
    if json:
        print_json({"file": out, **_ticket_fields(issued)})
    else:
        expires = _format_minute(issued.expires_at)
        print(f"{out}: ticket {issued.serial} for {name}, {role.value}, expires {expires}. Its bearer acts as {name}.")
    return SUCCESS


@ticket.command()
@reports_errors("ticket show")
def show(file: Annotated[Path, typer.Argument(metavar="FILE", help="The ticket.")], json: JsonOption = False) -> int:
    """Show the name, role, serial number and expiry of a ticket.

    Exit status 1 if it has expired.

    Examples:

    - `broadloom ticket show alice.ticket`
    """
    shown = Ticket.load(file)
    fields = _ticket_fields(shown)
    if json:
        print_json(fields)
    else:
        print(f"name     {escape_control_chars(shown.name)}")
        print(f"role     {shown.role.value}")
        print(f"serial   {shown.serial}")
        print(f"expires  {_format_minute(shown.expires_at)}{' (expired)' if fields['is_expired'] else ''}")
    return FAILURE if fields["is_expired"] else SUCCESS


@ticket.command()
@reports_errors("ticket revoke")
def revoke(
    authority: AuthorityOption,
    revocation_list: Annotated[
        Path, typer.Option("--revocation-list", metavar="FILE", help="Revocation list to create or extend.")
    ],
    tickets: Annotated[list[str], typer.Argument(metavar="TICKET...", help="Ticket files or serial numbers.")],
    json: JsonOption = False,
) -> int:
    """Add tickets to a revocation list.

    Distribute the list to the members, who pass it with --revocation-list.

    Examples:

    - `broadloom ticket revoke --authority club.authority --revocation-list revoked.pem alice.ticket`
    """
    issuer = Authority.load(authority)
    serials = []
    for each in tickets:
        if not Path(each).is_file():
            serials.append(each)
            continue
        revoked = Ticket.load(Path(each))
        if revoked.authority != issuer.certificate:
            raise UsageError(f"{each} was issued by another authority than {authority}")
        serials.append(revoked.serial)
    try:
        revoke_tickets(issuer, revocation_list, serials)
    except InvalidKeyError:
        raise
    except ValueError as problem:
        raise UsageError(f"{problem} (and no ticket file has that name)") from None
    if json:
        print_json({"file": revocation_list, "revoked": serials})
    else:
        print(f"{revocation_list}: revoked {', '.join(serials)}. Distribute this file to the members.")
    return SUCCESS


def _ticket_fields(shown: Ticket) -> dict[str, object]:
    return {
        "name": shown.name,
        "role": shown.role.value,
        "serial": shown.serial,
        "expires_at": shown.expires_at,
        "is_expired": shown.is_expired(datetime.now(UTC)),
    }


def _format_minute(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"
