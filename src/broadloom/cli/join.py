"""`broadloom join`: take part in a channel, from a terminal or through pipes."""

from typing import TYPE_CHECKING

from broadloom.cli.exit_codes import FAILURE, SUCCESS
from broadloom.cli.formatting import EventFormatter
from broadloom.cli.options import ChannelArgument, JoinOptions, JsonOption, KeepOpenOption
from broadloom.cli.output import Output
from broadloom.cli.runner import StopSignal, command, joined_channel
from broadloom.cli.session import Session

if TYPE_CHECKING:
    from broadloom.channel import Channel, ChannelEvent
    from broadloom.protocol.events import Message


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
            session = _JoinSession(joined, joined, out, json=json)
            unsubscribe = joined.on_event(session.on_event)
            try:
                return SUCCESS if await session.run(keep_open=keep_open) else FAILURE
            finally:
                unsubscribe()


class _JoinSession(Session["Channel"]):
    command = "join"

    def __init__(self, channel: "Channel", source: "Channel", out: Output, *, json: bool) -> None:
        super().__init__(channel, source, out, json=json)
        self._formatter = EventFormatter(channel)

    def show_joined(self) -> None:
        if self.json:
            self.terminal.show(self._formatter.joined_json())
        else:
            self.terminal.notice(self._formatter.joined())

    async def show_message(self, message: "Message") -> None:
        self.terminal.show(self._formatter.message_json(message) if self.json else self._formatter.message(message))

    def on_event(self, event: "ChannelEvent") -> None:
        if self.json:
            self.show_event(self._formatter.event_json(event))
        else:
            self.show_event(self._formatter.event(event), is_notice=True)

    async def send(self, line: bytes) -> None:
        await self.channel.broadcast(line)
