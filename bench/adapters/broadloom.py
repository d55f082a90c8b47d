"""Broadloom itself, by its public interface and in its own event loop.

Option `tls`: with the key made from the name.
"""

import asyncio
from collections.abc import Sequence

import broadloom
from bench.process_config import HOST, BaseNode
from broadloom.transport import event_loop

INBOX_MESSAGES_MAX = 10**7
INBOX_BYTES_MAX = 1 << 30

run = event_loop.run
connect = broadloom.connect
"""Resolved here, because the first access imports it, and joining is measured with imports done."""


class Node(BaseNode):
    async def connect(self, earlier: Sequence[str]) -> str:
        # The first peer is its own bootstrap host; each later one uses the peer that joined just before it.
        bootstrap = earlier[-1] if earlier else f"{HOST}:{self.config.port}"
        self._channel = await connect(
            f"bench/{self.config.seed}",
            bootstrap=[bootstrap],
            tls="tls" in self.config.options,
            advertise_host=HOST,
            port=self.config.port,
            inbox_messages_max=INBOX_MESSAGES_MAX,
            inbox_bytes_max=INBOX_BYTES_MAX,
            overflow="pause",
        )
        self._channel.on_event(self._on_event)
        deliver_many = self.delivery_check.deliver_many
        if self.topics:
            self._readers = [asyncio.create_task(self._read(self._channel.subscribe(topic))) for topic in self.topics]
        else:
            self._channel.on_batch(lambda batch: deliver_many(batch.data))
        return self._channel.status().address

    def _on_event(self, event: object) -> None:
        if isinstance(event, broadloom.Missed):
            self.delivery_check.missed += event.last_sequence - event.first_sequence + 1

    async def _read(self, subscription: broadloom.Subscription) -> None:
        async for batch in subscription.batches():
            self.delivery_check.deliver_many(batch.data)

    async def publish(self, payload: bytes) -> None:
        if self.topics:
            await self._channel.broadcast(payload, topic=self.next_topic())
        else:
            await self._channel.broadcast(payload)

    async def serve(self) -> str:
        self._channel.on_request(self._answer)
        return str(self._channel.peer_id)

    @staticmethod
    async def _answer(request: broadloom.DirectRequest) -> bytes:
        return request.data

    async def ask(self, server: str, payload: bytes) -> bytes:
        return (await self._channel.request(broadloom.PeerId(int(server, 16)), payload)).data
