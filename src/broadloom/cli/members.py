"""`broadloom members`: who is on a channel."""

from typing import TYPE_CHECKING, Annotated

from rich.text import Text

from broadloom.cli.exit_codes import FAILURE, SUCCESS
from broadloom.cli.formatting import SHORT_ID_DIGITS, escape_control_chars, member_event_line
from broadloom.cli.options import ChannelArgument, JoinOptions, JsonOption, option
from broadloom.cli.output import Output, console, print_json, table
from broadloom.cli.runner import StopSignal, command, joined_channel, print_error

if TYPE_CHECKING:
    from rich.table import Table

    from broadloom.channel import Channel
    from broadloom.protocol.roster.member import Member

COMPLETE_TIMEOUT_S = 10.0
"""Maximum time until the roster must be complete."""


@command("members")
async def members(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    json: JsonOption = False,
    follow: Annotated[bool, option("Go on with members that join, leave or are lost, until interrupted.")] = False,
) -> int:
    """List the members of a channel.

    Joins the channel for a moment, and does not list itself. A name in parentheses is one that the member chose; others
    are on tickets. Exit status 1 if the list is not complete after ten seconds.

    Examples:

    - `broadloom members chess/club-42`
    - `broadloom members chess/club-42 --json | jq .name`
    - `broadloom members chess/club-42 --follow`
    """
    async with joined_channel(channel, join_options, stop) as joined:
        stop.interrupt_is_success = follow
        try:
            listed = await joined.wait_for_roster(COMPLETE_TIMEOUT_S)
            is_complete = True
        except TimeoutError:
            listed, is_complete = joined.members(), False
        others = [member for member in listed if member.peer_id != joined.peer_id]
        if json:
            for member in others:
                print_json(member.as_dict())
        else:
            console().print(_table(others))
        if follow:
            await _follow(joined, stop, json=json)
    if not is_complete:
        print_error("members", f"the list is not complete after {COMPLETE_TIMEOUT_S:g} s")
        return FAILURE
    return SUCCESS


def _table(listed: "list[Member]") -> "Table":
    rows = table(["member", "name", "role", "address", "layers"])
    for member in listed:
        rows.add_row(
            str(member.peer_id)[:SHORT_ID_DIGITS],
            _name(member),
            member.role.value if member.role is not None else "",
            Text(escape_control_chars(str(member.address))),
            " ".join(member.layers),
        )
    if not listed:
        rows.add_row(Text("none", style="dim"))
    return rows


def _name(member: "Member") -> Text:
    name = escape_control_chars(member.name)
    return Text(name if member.is_proven or not name else f"({name})")


async def _follow(channel: "Channel", stop: StopSignal, *, json: bool) -> None:
    async with Output(stop) as out:
        async for event in channel.events():
            line = member_event_line(event, json=json)
            if line is not None:
                await out.write(f"{line}\n")
