"""`Producer`: publishes on a topic, and shows ads there."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from broadloom.apps.delivery.errors import DeniedError, NoDeskError, NoTopicError
from broadloom.apps.delivery.membership import FINAL, Membership, MembershipState
from broadloom.apps.delivery.messages import Action
from broadloom.channel import Channel
from broadloom.channel.closable import AsyncClosable

if TYPE_CHECKING:
    from broadloom.apps.delivery.service import Service

ADVERT_HEADER = "advert"
"""Header with the name of an ad."""


POLL_S = 0.02


class Producer(AsyncClosable):
    """Use it with `async with`."""

    def __init__(self, service: "Service", path: str, timeout_s: float | None) -> None:
        self.path = path
        self._service = service
        self._timeout_s = timeout_s
        self._membership: Membership | None = None

    async def __aenter__(self) -> Self:
        topic = self._service.directory.topic(self.path)
        if topic is None:
            raise NoTopicError(f"{self._service.name} has no topic {self.path}; `broadloom topics list` shows all")
        (grant,) = await self._service._grants(Action.PRODUCE, [topic.entry.path], "", self._timeout_s)
        if not grant.refusal and topic.producers and self._service.subscriber not in topic.producers:
            raise DeniedError(f"{self._service.subscriber} is not a producer of {self.path}")
        membership = self._membership = Membership(
            self._service, topic.entry, Action.PRODUCE, _Connection, stops_first=False
        )
        self._service._open[self] = None
        try:
            membership.begin(grant)
            await self._channel_now()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def _channel_now(self) -> Channel:
        """The channel, as soon as it is joined."""
        membership = self._membership
        assert membership is not None
        try:
            async with asyncio.timeout(self._timeout_s):
                await membership.settled()
        except TimeoutError:
            raise NoDeskError(f"{self.path}: {membership.reason}") from None
        if membership.state in FINAL or membership.connection is None:
            raise DeniedError(membership.reason)
        return membership.connection.channel

    @property
    def state(self) -> str:
        """`connected`, or what it waits for, or why it was refused."""
        return str(self._membership) if self._membership is not None else MembershipState.CLOSED.value

    async def wait_for_subscribers(self, count: int = 1, timeout_s: float | None = None) -> None:
        """Wait until this many other members are on the channel. A message reaches only those that are. Raises
        `TimeoutError`."""
        try:
            async with asyncio.timeout(timeout_s):
                while len((await self._channel_now()).members()) <= count:  # noqa: ASYNC110
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise TimeoutError(f"{self.path}: fewer than {count} subscribers within {timeout_s:g} s") from None

    async def wait_briefly_for_subscribers(self, timeout_s: float) -> int:
        """Wait at most this long for another member, and return how many there are."""
        with suppress(TimeoutError):
            await self.wait_for_subscribers(1, timeout_s)
        return len((await self._channel_now()).members()) - 1

    async def publish(
        self, data: bytes, *, content_type: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """Publish an item."""
        if headers and ADVERT_HEADER in headers:
            raise ValueError(f"the header {ADVERT_HEADER!r} marks ads: use advertise")
        channel = await self._channel_now()
        await channel.broadcast(data, topic=self.path, content_type=content_type, headers=headers)

    async def publish_text(self, text: str, *, headers: Mapping[str, str] | None = None) -> None:
        """Publish text."""
        await self.publish(text.encode(), content_type="text/plain", headers=headers)

    async def advertise(self, name: str, data: bytes) -> None:
        """Show an ad to all subscribers that are connected. Meters record it under its name, for the bill."""
        channel = await self._channel_now()
        await channel.advert(name, topic=self.path)
        await channel.broadcast(data, topic=self.path, headers={ADVERT_HEADER: name})

    async def aclose(self) -> None:
        membership, self._membership = self._membership, None
        if membership is not None:
            await membership.end()
        self._service._open.pop(self, None)


class _Connection:
    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        channel.on_message(_ignore)  # a producer does not read

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        await self.channel.leave()


def _ignore(_message: Any) -> None:
    pass
