"""A host divides a task among workers over mailboxes, and publishes the result as it grows.

A worker has a queue for its portions, and a value while it is there. Results come back to a queue of the host. The sum
is a value, which programs that come later can read too.
"""

import asyncio
from uuid import uuid4

import broadloom
from broadloom.mailboxes import Mailboxes

CHANNEL = f"farm/{uuid4()}"


async def work(name: str) -> None:
    async with broadloom.connect(CHANNEL, name=name) as channel, Mailboxes(channel) as boxes:
        portions = await boxes.bind("portions", keep="queue", receive="through")
        ready = await boxes.bind(f"workers/{name}", while_here=True)
        await ready.put(b"ready")
        async for portion in portions:
            total = sum(number * number for number in range(*portion.json()))
            await boxes.post(portion.sender, "results", b"%d" % total)


async def host(worker_count: int) -> None:
    async with broadloom.connect(CHANNEL, name="host") as channel, Mailboxes(channel) as boxes:
        results = await boxes.bind("results", keep="queue", receive="through")
        total = await boxes.bind("total")
        arrivals = await boxes.watch("workers/*")
        workers = [(await arrivals.receive(timeout_s=20)).value.owner for _ in range(worker_count)]
        for number in range(10):
            portion = b"[%d, %d]" % (100 * number, 100 * number + 100)
            await boxes.post(workers[number % worker_count], "portions", portion)
        found = 0
        for _ in range(10):
            found += int((await results.receive(timeout_s=20)).data)
            await total.put(b"%d" % found)


async def main() -> None:
    workers = [asyncio.create_task(work(name)) for name in ("ann", "bob")]
    async with broadloom.connect(CHANNEL) as channel, Mailboxes(channel) as boxes:
        await host(len(workers))
        print(f"The sum of the first thousand squares is {(await boxes.fetch('total')).text}")
    for worker in workers:
        worker.cancel()


asyncio.run(main())
