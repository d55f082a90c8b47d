"""The words and help of `broadloom ticket …`: a part of `cli.py`, with no logic either."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from broadloom.cli.options import JsonOption

DAYS = 30.0
DAYS_MAX = 36500.0

ticket = typer.Typer(
    no_args_is_help=True,
    help="Issue, show and withdraw tickets: each member of a channel by name, role and expiry.\n\n"
    "Examples:\n\n- `broadloom ticket issue --owner club.owner --name alice`",
)


class RoleChoice(StrEnum):
    producer = "producer"
    consumer = "consumer"


OwnerOption = Annotated[Path, typer.Option("--owner", help="The owner's file, from `broadloom key --owner`.")]


@ticket.command()
def issue(
    owner: OwnerOption,
    name: Annotated[str, typer.Option(help="Who it is for; others see this name.")],
    role: Annotated[RoleChoice, typer.Option(help="A consumer may only listen.")] = RoleChoice.producer,
    days: Annotated[float, typer.Option(min=0, max=DAYS_MAX, help="How long it is good for.")] = DAYS,
    out: Annotated[Path | None, typer.Option(help="Where to write it.", show_default="NAME.ticket")] = None,
) -> None:
    """Issue a ticket for one member.

    Examples:

    - `broadloom ticket issue --owner club.owner --name alice --role consumer --days 90 --out alice.ticket`
    """
    from broadloom.cli import keys as command

    raise typer.Exit(command.issue(owner, name=name, role=role.value, days=days, out=out))


@ticket.command()
def show(file: Annotated[Path, typer.Argument(help="A ticket.")], json: JsonOption = False) -> None:
    """Say what is on a ticket: name, role, serial number, expiry. Ends with 1 if it has expired.

    Examples:

    - `broadloom ticket show alice.ticket`
    """
    from broadloom.cli import keys as command

    raise typer.Exit(command.show(file, json=json))


@ticket.command()
def revoke(
    owner: OwnerOption,
    list_file: Annotated[Path, typer.Option("--list", help="The list of withdrawn tickets; made if there is none.")],
    tickets: Annotated[list[str], typer.Argument(help="Files of tickets, or their serial numbers.")],
) -> None:
    """Withdraw tickets, by adding them to a list that members are given (`--revoked`).

    Examples:

    - `broadloom ticket revoke --owner club.owner --list withdrawn.pem alice.ticket`
    """
    from broadloom.cli import keys as command

    raise typer.Exit(command.revoke(owner, revocation_list=list_file, tickets=tickets))
