"""A small news service: a desk, a producer, a subscriber, and a meter whose tape the pipeline turns into bills.

Normally each part is a program of its own (`broadloom topics serve`, `subscribe`, `publish`, `broadloom meter`), and
the operator issues the tickets with `broadloom ticket issue`. Here everything happens in one program.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from tempfile import TemporaryDirectory
from uuid import uuid4

from broadloom import Authority, Role, Ticket
from broadloom.apps import delivery
from broadloom.record import summarize

NAME, TOPIC = f"delivery/{uuid4()}", "sports/nfl/scores"
OWNER = Authority.generate()


def ticket(name: str) -> Ticket:
    return OWNER.issue_ticket(name, Role.CONSUMER, datetime.now(UTC) + timedelta(days=30))


async def main(tapes: str) -> None:
    async with (
        delivery.Desk(NAME, OWNER, creators=["editor"], qualifications={"paid": ["anna"]}),
        delivery.join(NAME, ticket("editor")) as editor,
        delivery.join(NAME, ticket("nfl")) as nfl,
        delivery.join(NAME, ticket("anna")) as anna,
        delivery.Meter(NAME, ticket("meter"), tapes) as meter,
    ):
        await editor.create(TOPIC, producers=["nfl"], plans=["visitor"], qualifications=["paid"])
        for program in (nfl, anna):
            await program.wait_for(TOPIC)
        await meter.wait_until_metering(TOPIC)
        async with anna.subscribe("sports", plan="visitor") as feed, nfl.produce(TOPIC) as producer:
            await producer.wait_for_subscribers(2, timeout_s=10)  # the meter and anna
            await producer.publish_text("Bears 21:14")
            await producer.advertise("spring-sale", b"Tea at half price")
            for item in [await feed.receive(timeout_s=10) for _ in range(2)]:
                print(f"{item.topic}, {item.producer}: {item.text}" + (f" (ad {item.advert})" if item.advert else ""))


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        asyncio.run(main(folder))
        (tape,) = summarize(folder)
        print(f"identifications and ads on the tape: {tape.kinds['identification'] > 0}, {tape.kinds['ad_impression']}")
