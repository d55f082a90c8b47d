"""`broadloom meter`: record who is connected to the topics of a service, for bills."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from broadloom.cli.exit_codes import SUCCESS, usage_errors
from broadloom.cli.formatting import escape_control_chars, json_line
from broadloom.cli.options import ChannelArgument, DurationOption, JsonOption, argument, option
from broadloom.cli.output import Output
from broadloom.cli.record import open_tape
from broadloom.cli.runner import StopSignal, command
from broadloom.cli.service_options import ServiceOptions


@command("meter", extra="record")
async def meter(
    stop: StopSignal,
    service_options: ServiceOptions,
    channel: ChannelArgument,
    out: Annotated[Path, option("Directory of the tape. It may hold other tapes.", "DIR", "--out", "-o")],
    pattern: Annotated[
        list[str] | None, argument("Topics, categories or patterns. Default: all.", "[PATTERN...]")
    ] = None,
    duration: DurationOption = None,
    json: JsonOption = False,
) -> int:
    """Record who is connected to which topic, and which ads are shown, until interrupted.

    The ticket must be issued to the name `meter`. `broadloom pipeline run` makes bills of the tapes. Run two meters
    on different machines: they give the same bills as one, also if one of them fails.

    Examples:

    - `broadloom meter delivery/news --out tapes --ticket meter.ticket`
    - `broadloom meter delivery/news sports "weather/*" --out tapes --ticket meter.ticket`
    """
    from broadloom.apps import delivery

    ticket = service_options.checked_ticket()
    tape = open_tape(out)
    patterns = tuple(pattern or ("**",))
    try:
        with usage_errors():
            metering = delivery.Meter(channel, ticket, tape, patterns=patterns, **service_options.connect_options())
        async with metering, Output(stop) as shown:
            stop.interrupt_is_success = True
            if paths := [topic.path for each in patterns for topic in metering.service.topics(each)]:
                with suppress(TimeoutError):  # the others are joined as soon as a desk answers
                    await metering.wait_until_metering(*paths, timeout_s=service_options.timeout)
            fields = {"event": "metering", "channel": channel, "out": str(out)}
            text = f"metering {escape_control_chars(channel)} to {escape_control_chars(str(out))}"
            await shown.write(f"{json_line(fields) if json else text}\n")
            async with asyncio.timeout(duration):
                async for _ in metering.service.channel.events():
                    pass
    except TimeoutError:
        pass
    finally:
        await asyncio.to_thread(tape.close)
    return SUCCESS
