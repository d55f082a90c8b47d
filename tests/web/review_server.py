"""As a program, `python -m tests.web.review_server CHANNEL`: the pages of a server that is one participant of this
channel. It prints their address and its process. SIGUSR1 makes its meeting fail."""

import asyncio
import json
import os
import signal
import sys

import broadloom
from broadloom.apps.conference import ConferenceError
from broadloom.order.channel_runtime import OrderLayer
from broadloom.web.server import serve
from tests.channel.joined import QUICK


async def main(channel: str) -> None:
    async with broadloom.connect(channel, name="Server", tls=False, settings=QUICK) as joined:

        def fail() -> None:
            for runtime in OrderLayer.of(joined)._conversations.values():
                runtime.application._end(ConferenceError("the entries are gone"))

        def ready(url: str) -> None:
            print(json.dumps({"url": url, "process": os.getpid()}), flush=True)

        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, fail)
        await serve(channel=joined, port=0, on_ready=ready)


if __name__ == "__main__":
    from broadloom.cli.runner import StopSignal, command

    @command("test")
    async def work(stop: StopSignal) -> None:
        stop.interrupt_is_success = True
        await main(sys.argv[1])

    sys.exit(work())
