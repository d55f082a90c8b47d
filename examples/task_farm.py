"""A task farm: a host divides work, workers take portions, and the portions of a killed worker go to another.

The host addresses no worker: it requests an operation, and the switch finds the worker with the least to do. Workers
can join and leave at any time, also on other machines. Here the host starts three; the first one hangs, and is killed.
"""

import asyncio
import json
import sys
from uuid import uuid4

import broadloom
from broadloom.switch import HandledRequest, Switch, SwitchReply

PORTION = 500


async def work(name: str, seconds: str) -> None:
    async with broadloom.connect(name) as channel, Switch(channel, session="farm") as switch:

        @switch.handle("count primes", concurrency=1)
        async def count(request: HandledRequest) -> bytes:
            first, last = request.json()
            await asyncio.sleep(float(seconds))  # longer work would run in a thread
            return b"%d" % sum(all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(max(first, 2), last))

        await asyncio.get_running_loop().create_future()  # until it is killed


async def main() -> None:
    name = f"farm/{uuid4()}"
    start = asyncio.create_subprocess_exec
    workers = [await start(sys.executable, __file__, name, seconds) for seconds in ("3600", "0.05", "0.05")]
    async with broadloom.connect(name) as channel, Switch(channel, session="farm") as switch:
        await switch.wait_for_handler("count primes", count=len(workers))
        portions = [[first, first + PORTION] for first in range(0, 24 * PORTION, PORTION)]
        sent = [switch.request("count primes", json.dumps(each).encode(), if_lost="next") for each in portions]
        counting = asyncio.gather(*sent)
        await asyncio.sleep(0.1)
        workers[0].kill()
        replies: list[SwitchReply] = await counting
        print(f"{sum(each.json() for each in replies)} primes below {24 * PORTION}")
        print(f"{sum(len(each.asked) > 1 for each in replies)} portions were given to another worker")
    for worker in workers[1:]:
        worker.kill()
    await asyncio.gather(*(worker.wait() for worker in workers))


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]) if len(sys.argv) > 1 else main())
