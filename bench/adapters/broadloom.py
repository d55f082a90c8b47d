"""Broadloom itself, by its public interface and in its own event loop.

Option `tls`: with the key made from the name; `signed`: and with signatures. Option `fresh`: a value is read from its
writer, not from the own copy.
"""

import asyncio
from collections.abc import Sequence

import broadloom
from bench.process_config import HOST, BaseNode
from broadloom.mailboxes import Mailboxes
from broadloom.switch import HandledRequest, Switch
from broadloom.transport import event_loop

INBOX_MESSAGES_MAX = 10**7
INBOX_BYTES_MAX = 1 << 30
OPERATION = "switch"
MAILBOX = "mailbox"
SESSION = "bench"
READY_S = 20.0

run = event_loop.run
connect = broadloom.connect
"""Resolved here, because the first access imports it, and joining is measured with imports done."""


class Node(BaseNode):
    _switch: Switch | None = None
    _mailboxes: Mailboxes | None = None

    async def connect(self, earlier: Sequence[str]) -> str:
        # The first peer is its own bootstrap host; each later one uses the peer that joined just before it.
        bootstrap = earlier[-1] if earlier else f"{HOST}:{self.config.port}"
        self._channel = await connect(
            f"bench/{self.config.seed}",
            bootstrap=[bootstrap],
            tls=not {"tls", "signed"}.isdisjoint(self.config.options),
            signed="signed" in self.config.options,
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

    async def serve(self, service: str) -> str:
        if service == OPERATION:
            self._switch = Switch(self._channel, session=SESSION)
            self._switch.handle(OPERATION)(self._answer)
            return OPERATION
        if service == MAILBOX:
            self._mailboxes = Mailboxes(self._channel, owner="server")
            mailbox = await self._mailboxes.bind(MAILBOX, fetch=True)
            await mailbox.put(bytes(self.config.size_bytes))
            return MAILBOX
        self._channel.on_request(self._answer)
        return str(self._channel.peer_id)

    @staticmethod
    async def _answer(request: broadloom.DirectRequest | HandledRequest) -> bytes:
        return request.data

    async def ask(self, server: str, payload: bytes) -> bytes:
        if server == OPERATION:
            if self._switch is None:
                self._switch = Switch(self._channel, session=SESSION)
                await self._switch.wait_for_handler(OPERATION, timeout_s=READY_S)
            return (await self._switch.request(OPERATION, payload)).data
        if server == MAILBOX:
            if self._mailboxes is None:
                self._mailboxes = Mailboxes(self._channel, owner=str(self.config.index))
                async with await self._mailboxes.watch(MAILBOX) as changes:
                    await changes.receive(READY_S)
            return (await self._mailboxes.fetch(MAILBOX, fresh="fresh" in self.config.options)).data
        return (await self._channel.request(broadloom.PeerId(int(server, 16)), payload)).data
