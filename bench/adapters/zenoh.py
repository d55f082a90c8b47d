"""Eclipse Zenoh: peers in a full mesh, no router, and a publisher that waits instead of dropping.

Between processes of one machine Zenoh hands messages of some KiB over in shared memory. Option `tcp` turns that off:
so it is with processes on several machines.
"""

import json
from collections.abc import Sequence

import zenoh

from bench.process_config import HOST, BaseNode

KEY = "bench"


class Node(BaseNode):
    async def connect(self, earlier: Sequence[str]) -> str:
        address = f"tcp/{HOST}:{self.config.port}"
        settings: dict[str, object] = {
            "mode": "peer",
            "listen/endpoints": [address],
            "connect/endpoints": list(earlier),
            "scouting/multicast/enabled": False,
        }
        if "tcp" in self.config.options:
            settings["transport/shared_memory/enabled"] = False
        config = zenoh.Config()
        for key, value in settings.items():
            config.insert_json5(key, json.dumps(value))
        self._session = zenoh.open(config)
        if self.config.receives:
            deliver = self.delivery_check.deliver
            self._subscriber = self._session.declare_subscriber(KEY, lambda each: deliver(each.payload.to_bytes()))
        if self.config.sends:
            block = zenoh.CongestionControl.BLOCK
            self._publisher = self._session.declare_publisher(KEY, congestion_control=block)
        return address

    async def publish(self, payload: bytes) -> None:
        self._publisher.put(payload)
