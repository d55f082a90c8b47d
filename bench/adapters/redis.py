"""Redis pub/sub by redis-py with hiredis. Sends in pipelines: else one would measure round trips."""

import threading
from collections.abc import Sequence

import redis

from bench.process_config import HOST, BaseNode

CHANNEL = "bench"
PIPELINE_MESSAGES = 100


class Node(BaseNode):
    async def connect(self, earlier: Sequence[str]) -> str:
        self._client = redis.Redis(host=HOST, port=self.config.broker["port"])
        self._pipeline = self._client.pipeline(transaction=False)
        self._waiting = 0
        if self.config.receives:
            self._subscription = self._client.pubsub(ignore_subscribe_messages=True)
            self._subscription.subscribe(*self.topics or [CHANNEL])
            threading.Thread(target=self._listen, daemon=True).start()
        return "-"

    def _listen(self) -> None:
        deliver = self.delivery_check.deliver
        for message in self._subscription.listen():
            deliver(message["data"])

    async def publish(self, payload: bytes) -> None:
        self._pipeline.publish(self.next_topic() if self.topics else CHANNEL, payload)
        self._waiting += 1
        if self._waiting >= PIPELINE_MESSAGES:
            await self.flush()

    async def flush(self) -> None:
        self._waiting = 0
        self._pipeline.execute()
