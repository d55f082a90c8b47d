"""GossipSub of py-libp2p: TCP, Noise, Yamux, signed messages, as by default, but without limits on a peer's rate."""

import random
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import trio
from libp2p import new_host
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11, GossipSub
from libp2p.pubsub.pubsub import Pubsub
from libp2p.tools.anyio_service import background_trio_service
from multiaddr import Multiaddr

from bench.node import Command, CommandRunner, create_node, read_commands
from bench.process_config import HOST, BaseNode, ProcessConfig

TOPIC = "bench"
BOOTSTRAP_NODES = 4
SENT_PER_S_MAX = 20
"""Of all authors together. Sent faster, most messages of even eight processes are lost."""
COMMANDS_MAX = 100


def run_trio(config: ProcessConfig) -> None:
    """py-libp2p needs trio; else as in `bench.node.life`."""

    async def life() -> None:
        node, delivery_check = create_node(config)
        send, receive = trio.open_memory_channel[Command](COMMANDS_MAX)
        token = trio.lowlevel.current_trio_token()

        def put(order: Command) -> None:
            token.run_sync_soon(send.send_nowait, order)

        async def commands() -> AsyncIterator[Command]:
            async for order in receive:
                yield order

        threading.Thread(target=read_commands, args=(delivery_check, put), daemon=True).start()
        await CommandRunner(config, node, trio.sleep).run(commands())

    trio.run(life)


class Node(BaseNode):
    async def connect(self, earlier: Sequence[str]) -> str:
        listen_address = Multiaddr(f"/ip4/{HOST}/tcp/{self.config.port}")
        host = new_host(listen_addrs=[listen_address])
        router = GossipSub(
            [PROTOCOL_ID_V11],
            degree=6,
            degree_low=4,
            degree_high=12,
            heartbeat_interval=1,
            spam_protection_enabled=False,
            eclipse_protection_enabled=False,
        )
        self._pubsub = Pubsub(host, router)
        self._open = AsyncExitStack()
        await self._open.enter_async_context(host.run(listen_addrs=[listen_address]))
        await self._open.enter_async_context(background_trio_service(self._pubsub))
        await self._open.enter_async_context(background_trio_service(router))
        await self._pubsub.wait_until_ready()
        subscription = await self._pubsub.subscribe(TOPIC)
        trio.lowlevel.spawn_system_task(self._listen, subscription)
        for address in random.sample(list(earlier), min(BOOTSTRAP_NODES, len(earlier))):
            await host.connect(info_from_p2p_addr(Multiaddr(address)))
        return next(str(address) for address in host.get_addrs() if HOST in str(address))

    async def _listen(self, subscription: Any) -> None:
        while True:
            self.delivery_check.deliver((await subscription.get()).data)

    async def publish(self, payload: bytes) -> None:
        if not self.config.paced:
            await trio.sleep(len(self.config.authors) / SENT_PER_S_MAX)
        await self._pubsub.publish(TOPIC, payload)
