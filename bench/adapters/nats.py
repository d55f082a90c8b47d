"""NATS by nats-py, with no limit on what waits to be handled: subjects, services (micro) and the key-value store, in
memory. Options `uvloop`, `tls`."""

import ssl
from collections.abc import Sequence
from typing import Any

import nats
import nats.micro
from nats.js.api import KeyValueConfig, StorageType

from bench.process_config import HOST, BaseNode

SUBJECT = "bench"
FLUSH_S = 60
REQUESTS = "requests"
SERVICE = "switch"
BUCKET = "mailbox"
KEY = "value"
REQUEST_S = 5
NO_LIMITS = {"pending_msgs_limit": -1, "pending_bytes_limit": -1}


class Node(BaseNode):
    _bucket: Any = None

    async def connect(self, earlier: Sequence[str]) -> str:
        port, certificate = self.config.broker["port"], self.config.broker.get("certificate")
        security: dict[str, Any] = {}
        if certificate:
            security = {"tls": ssl.create_default_context(cafile=certificate), "tls_hostname": HOST}
        self._client = await nats.connect(
            f"{'tls' if certificate else 'nats'}://{HOST}:{port}",
            no_echo=True,  # own messages do not count, so they need not come back
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnect,
            **security,
        )
        if self.config.receives:
            for subject in map(_subject, self.topics or [SUBJECT]):
                await self._client.subscribe(subject, cb=self._on_message, **NO_LIMITS)
            await self._client.flush()
        return "-"

    async def _on_message(self, message: Any) -> None:
        self.delivery_check.deliver(message.data)

    async def _on_error(self, _problem: Exception) -> None:
        self.delivery_check.errors += 1

    async def _on_disconnect(self) -> None:
        self.delivery_check.errors += 1

    async def serve(self, service: str) -> str:
        if service == SERVICE:
            echo = await nats.micro.add_service(self._client, name=SERVICE, version="1.0.0")
            await echo.add_endpoint(name=SERVICE, handler=self._answer_service)
            await self._client.flush()
            return SERVICE
        if service == BUCKET:
            config = KeyValueConfig(bucket=BUCKET, storage=StorageType.MEMORY)
            bucket = await self._client.jetstream().create_key_value(config)
            await bucket.put(KEY, bytes(self.config.size_bytes))
            return BUCKET

        async def answer(message: Any) -> None:
            await message.respond(message.data)

        await self._client.subscribe(REQUESTS, cb=answer, **NO_LIMITS)
        await self._client.flush()
        return REQUESTS

    @staticmethod
    async def _answer_service(request: Any) -> None:
        await request.respond(request.data)

    async def ask(self, server: str, payload: bytes) -> bytes:
        if server == BUCKET:
            if self._bucket is None:
                self._bucket = await self._client.jetstream().key_value(BUCKET)
            value: bytes = (await self._bucket.get(KEY)).value
            return value
        data: bytes = (await self._client.request(server, payload, timeout=REQUEST_S)).data
        return data

    async def publish(self, payload: bytes) -> None:
        await self._client.publish(_subject(self.next_topic()) if self.topics else SUBJECT, payload)

    async def flush(self) -> None:
        await self._client.flush(timeout=FLUSH_S)


def _subject(topic: str) -> str:
    return topic.replace("/", ".")
