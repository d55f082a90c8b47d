"""iroh-gossip: HyParView and PlumTree over QUIC, in Rust, by the Python package iroh 0.35 (later ones have no gossip).

Nodes are given each other's addresses: no relay servers, no discovery.
"""

import asyncio
import random
from collections.abc import Sequence

import iroh

from bench.delivery_check import DeliveryCheck
from bench.process_config import HOST, BaseNode

TOPIC = bytes(32)
BOOTSTRAP_NODES = 2
ATTEMPTS = 5
LINKED_S = 5.0


class GossipReceiver(iroh.GossipMessageCallback):  # type: ignore[misc]
    def __init__(self, delivery_check: DeliveryCheck) -> None:
        self._deliver = delivery_check.deliver
        self.linked = asyncio.Event()

    async def on_message(self, message: "iroh.Message") -> None:
        kind = message.type()
        if kind == iroh.MessageType.RECEIVED:
            self._deliver(message.as_received().content)
        elif kind == iroh.MessageType.NEIGHBOR_UP:
            self.linked.set()


class Node(BaseNode):
    async def prepare(self) -> None:
        """Not part of joining: without an Internet a node first waits some seconds for the relay servers."""
        iroh.iroh_ffi.uniffi_set_event_loop(asyncio.get_running_loop())
        options = iroh.NodeOptions(
            gc_interval_millis=0,
            blob_events=None,
            enable_docs=False,
            ipv4_addr=f"{HOST}:{self.config.port}",
            ipv6_addr=None,
            node_discovery=iroh.NodeDiscoveryConfig.NONE,
            secret_key=None,
            protocols=None,
        )
        self._node = await iroh.Iroh.memory_with_options(options)
        self._key = await self._node.net().node_id()

    async def connect(self, earlier: Sequence[str]) -> str:
        keys = []
        for address in earlier:
            key, socket_address = address.split("@")
            keys.append(key)
            await self._node.net().add_node_addr(iroh.NodeAddr(iroh.PublicKey.from_string(key), None, [socket_address]))
        for _ in range(ATTEMPTS):
            receiver = GossipReceiver(self.delivery_check)
            bootstrap = random.sample(keys, min(BOOTSTRAP_NODES, len(keys)))
            self._sender = await self._node.gossip().subscribe(TOPIC, bootstrap, receiver)
            if not keys:
                break
            try:
                await asyncio.wait_for(receiver.linked.wait(), LINKED_S)
                break
            except TimeoutError:
                continue
        return f"{self._key}@{HOST}:{self.config.port}"

    async def publish(self, payload: bytes) -> None:
        await self._sender.broadcast(payload)
