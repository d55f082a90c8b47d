"""Temperature sensors without a broker: each sends readings, and a collector prints a table.

The messages are JSON. Lost readings are counted in `missed_count`, so the collector knows if its table is complete.
"""

import asyncio
import random
from uuid import uuid4

import broadloom

ROOMS = ("kitchen", "cellar", "roof")
READINGS = 5


async def sensor(name: str, room: str) -> None:
    async with broadloom.connect(name) as channel:
        for _ in range(READINGS):
            await channel.broadcast_json({"room": room, "celsius": round(random.uniform(15, 25), 1)})
            await asyncio.sleep(0.1)


async def collect(channel: broadloom.Channel, expected: int) -> dict[str, list[float]]:
    table: dict[str, list[float]] = {}
    for _ in range(expected):
        reading = (await channel.receive(timeout_s=10)).json()
        table.setdefault(reading["room"], []).append(reading["celsius"])
    return table


async def main() -> None:
    name = f"sensors/{uuid4()}"
    async with broadloom.connect(name) as channel:
        collecting = asyncio.create_task(collect(channel, READINGS * len(ROOMS)))
        await asyncio.gather(*(sensor(name, room) for room in ROOMS))
        for room, celsius in (await collecting).items():
            print(f"{room:8} {min(celsius):5.1f} to {max(celsius):5.1f} °C, {len(celsius)} readings")
        print(f"missed: {channel.missed_count}")


if __name__ == "__main__":
    asyncio.run(main())
