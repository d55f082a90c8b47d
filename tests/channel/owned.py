"""A channel with an owner: an authority, tickets, and members that connect with them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import broadloom
from broadloom import Authority, Channel, Role, Ticket
from tests.channel.joined import QUICK, unique_name

END = datetime.now(UTC) + timedelta(days=1)


def ticket_of(owner: Authority, name: str, role: Role = Role.PRODUCER) -> Ticket:
    return owner.issue_ticket(name, role, END)


class OwnedChannel:
    def __init__(self) -> None:
        self.name = unique_name()
        self.owner = Authority.generate()
        self.tickets: list[Ticket] = []
        self.members: list[Channel] = []
        self.events: dict[Channel, list[object]] = {}

    async def join(self, **options: Any) -> Channel:
        """A new member, with a ticket of its own unless the options say otherwise."""
        if not {"ticket", "tls", "key"} & set(options):
            options["ticket"] = ticket_of(self.owner, f"member {len(self.members)}")
            self.tickets.append(options["ticket"])
        member = await broadloom.connect(self.name, **{"settings": QUICK, **options})
        self.members.append(member)
        self.events[member] = []
        member.on_event(self.events[member].append)
        return member

    def events_of(self, member: Channel, kind: type) -> list[Any]:
        return [event for event in self.events[member] if isinstance(event, kind)]

    def counter_total(self, name: str) -> int:
        return sum(member.status().counters[name] for member in self.members)


@asynccontextmanager
async def owned_channel(count: int, **options: Any) -> AsyncIterator[OwnedChannel]:
    channel = OwnedChannel()
    try:
        for _ in range(count):
            await channel.join(**options)
        yield channel
    finally:
        for member in channel.members:
            member.abort()
