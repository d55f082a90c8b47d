"""`python -m tests.apps.delivery.meter_process SERVICE TICKET TAPES PATH`: a meter that is killed by a test.

It prints a line when it meters the topic, and ends with SIGTERM."""

import asyncio
import signal
import sys

from broadloom.apps import delivery
from broadloom.record import Tape, TapeSettings
from tests.channel.joined import QUICK

FILE_S = 0.3
"""Age at which files of the tape are finished: a kill loses no more than that."""


async def main(service: str, ticket: str, tapes: str, path: str) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    tape = Tape(tapes, settings=TapeSettings(file_duration_s=FILE_S, poll_interval_s=FILE_S / 3))
    async with delivery.Meter(service, ticket, tape, settings=QUICK) as meter:
        await meter.service.wait_for(path)
        await meter.wait_until_metering(path)
        print("metering", flush=True)
        await stopped.wait()
    tape.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
