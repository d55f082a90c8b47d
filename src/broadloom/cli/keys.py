"""`broadloom key`, `broadloom authority` and `broadloom ticket`: access to a channel.

Only `key generate` without `--out` prints a secret, and no file with a secret is ever overwritten.
"""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from broadloom.cli.exit_codes import FAILURE, SUCCESS, UsageError, usage_errors
from broadloom.cli.formatting import escape_control_chars
from broadloom.cli.options import JsonOption, argument, command_group, option
from broadloom.cli.output import print_result
from broadloom.cli.runner import command
from broadloom.protocol import ChannelName
from broadloom.protocol.identity import Role
from broadloom.security import Authority, Ticket, generate_key, revoke_tickets
from broadloom.security.pem import write_private

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


AuthorityOption = Annotated[Path, option("The authority file, from `broadloom authority create`.", "FILE")]


@command("key generate", key)
def generate(
    out: Annotated[Path | None, option("Output file, instead of printing the key.", "FILE", "--out", "-o")] = None,
    json: JsonOption = False,
) -> None:
    """Generate a shared key for a channel.

    Examples:

    - `broadloom key generate --out club.key`
    - `export BROADLOOM_KEY=$(broadloom key generate)`
    """
    new_key = generate_key()
    if out is None:
        print_result({"key": new_key}, new_key, json=json)
        return
    write_private(out, f"{new_key}\n".encode())
    print_result({"file": out}, f"{out}: a shared key. Give it to the members only.", json=json)


@command("authority create", authority)
def create(
    out: Annotated[Path, option("Output file. Keep it secret.", "FILE", "--out", "-o")],
    channel: Annotated[str, option("Restrict tickets to this channel.", "CHANNEL")] = "",
    json: JsonOption = False,
) -> None:
    """Create a certificate authority that issues tickets for a channel.

    Examples:

    - `broadloom authority create --out club.authority --channel chess/club-42`
    """
    with usage_errors():
        channel_id = ChannelName.parse(channel).id if channel else None
    Authority.generate(channel_id).save(out)
    text = f"{out}: authority for {channel or 'any channel'}. Keep it secret, and keep a backup."
    print_result({"file": out, "channel": channel or None}, text, json=json)


@command("ticket issue", ticket)
def issue(
    authority: AuthorityOption,
    name: Annotated[str, option("Name of the member, as other members see it.")],
    role: Annotated[RoleChoice, option("Role of the member; a consumer cannot broadcast.")] = RoleChoice.producer,
    days: Annotated[float, option("Days until it expires.", "N", min=0, max=DAYS_MAX)] = DAYS,
    out: Annotated[Path | None, option("Output file.", "FILE", "--out", "-o", show_default="NAME.ticket")] = None,
    json: JsonOption = False,
) -> None:
    """Issue a ticket for a member.

    Examples:

    - `broadloom ticket issue --authority club.authority --name alice --role consumer --days 90`
    """
    if out is None:
        if Path(name).name != name:
            raise UsageError(f"{name!r} cannot be a file name: set the output file with --out")
        out = Path(f"{name}.ticket")
    issuer = Authority.load(authority)
    with usage_errors():
        issued = issuer.issue_ticket(name, Role(role.value), datetime.now(UTC) + timedelta(days=days))
    issued.save(out)
    expires = _format_minute(issued.expires_at)
    text = f"{out}: ticket {issued.serial} for {name}, {role.value}, expires {expires}. Its bearer acts as {name}."
    print_result({"file": out, **_ticket_fields(issued)}, text, json=json)


@command("ticket show", ticket)
def show(file: Annotated[Path, argument("The ticket.", "FILE")], json: JsonOption = False) -> int:
    """Show the name, role, serial number and expiry of a ticket.

    Exit status 1 if it has expired.

    Examples:

    - `broadloom ticket show alice.ticket`
    """
    shown = Ticket.load(file)
    fields = _ticket_fields(shown)
    text = (
        f"name     {escape_control_chars(shown.name)}\n"
        f"role     {shown.role.value}\n"
        f"serial   {shown.serial}\n"
        f"expires  {_format_minute(shown.expires_at)}{' (expired)' if fields['is_expired'] else ''}"
    )
    print_result(fields, text, json=json)
    return FAILURE if fields["is_expired"] else SUCCESS


@command("ticket revoke", ticket)
def revoke(
    authority: AuthorityOption,
    revocation_list: Annotated[Path, option("Revocation list to create or extend.", "FILE")],
    tickets: Annotated[list[str] | None, argument("Ticket files or serial numbers.", "TICKET")] = None,
    json: JsonOption = False,
) -> None:
    """Add tickets to a revocation list.

    Publish the list with `broadloom ticket publish`, or distribute it to the members, who pass it with
    --revocation-list. Without tickets, an empty list is created, so that members can use it from the start.

    Examples:

    - `broadloom ticket revoke --authority club.authority --revocation-list revoked.pem alice.ticket`
    """
    issuer = Authority.load(authority)
    serials = []
    for each in tickets or ():
        if not Path(each).is_file():
            serials.append(each)
            continue
        revoked = Ticket.load(Path(each))
        if revoked.authority != issuer.certificate:
            raise UsageError(f"{each} was issued by another authority than {authority}")
        serials.append(revoked.serial)
    with usage_errors(suffix=" (and no ticket file has that name)"):
        revoke_tickets(issuer, revocation_list, serials)
    added = f"revoked {', '.join(serials)}" if serials else "no tickets added"
    text = f"{revocation_list}: {added}. Publish it, or distribute it to the members."
    print_result({"file": revocation_list, "revoked": serials}, text, json=json)


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
