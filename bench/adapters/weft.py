"""Weft itself, by its public interface and in its own event loop. Option `tls`: with the key made from the name."""

from collections.abc import Sequence

import weft
from bench.part import HOST, BaseNode
from weft.net import loop

INBOX_MESSAGES_MAX = 10**7
INBOX_BYTES_MAX = 1 << 30

run = loop.run


class Node(BaseNode):
    async def connect(self, earlier: Sequence[str]) -> str:
        # The first one is its own portal; the others find the fabric at whoever came just before them.
        portal = earlier[-1] if earlier else f"{HOST}:{self.part.port}"
        self._channel = await weft.connect(
            f"bench/{self.part.seed}",
            portals=[portal],
            plain="tls" not in self.part.options,
            host=HOST,
            port=self.part.port,
            inbox_messages_max=INBOX_MESSAGES_MAX,
            inbox_bytes_max=INBOX_BYTES_MAX,
            behind="wait",
        )
        self._channel.on_event(self._told)
        deliver_many = self.tally.deliver_many
        self._channel.on_batch(lambda batch: deliver_many(batch.data))
        return self._channel.status().address

    def _told(self, event: object) -> None:
        if isinstance(event, weft.Missed):
            self.tally.missed += event.last - event.first + 1

    async def publish(self, payload: bytes) -> None:
        await self._channel.broadcast(payload)
