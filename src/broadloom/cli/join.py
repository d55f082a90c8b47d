"""`broadloom join`: take part in a channel, from a terminal or through pipes."""

from broadloom.cli.exit_codes import FAILURE
from broadloom.cli.options import ChannelArgument, JoinOptions, JsonOption, KeepOpenOption
from broadloom.cli.output import Output
from broadloom.cli.runner import StopSignal, command, joined_channel
from broadloom.cli.session import Session


@command("join")
async def join(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    keep_open: KeepOpenOption = False,
    json: JsonOption = False,
) -> int:
    """Join a channel: broadcast each input line and print incoming messages.

    At a terminal, Ctrl-D or Ctrl-C leaves. In a pipe, the end of the input does.

    Examples:

    - `broadloom join chess/club-42`
    - `broadloom join chess/club-42 --bootstrap 10.0.0.5`
    - `./game | broadloom join chess/x --keep-open`
    """
    async with joined_channel(channel, join_options, stop) as joined:
        stop.interrupt_is_success = True
        async with Output(stop) as out:
            session = Session("join", joined, out, json=json)
            had_receivers = await session.run(keep_open=keep_open)
    return session.exit_code if had_receivers else FAILURE
