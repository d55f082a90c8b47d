"""MQTT at QoS 0: mosquitto, by paho-mqtt in its own network thread."""

import threading
from collections.abc import Sequence
from typing import Any

import paho.mqtt.client as mqtt

from bench.process_config import HOST, BaseNode

TOPIC = "bench"
WAIT_S = 60


class Node(BaseNode):
    async def connect(self, earlier: Sequence[str]) -> str:
        self._ready = threading.Event()
        self._last: Any = None
        deliver = self.delivery_check.deliver
        self._client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
        self._client.on_message = lambda _client, _userdata, message: deliver(message.payload)
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = lambda *_: self._ready.set()
        self._client.on_disconnect = self._on_disconnect
        self._client.connect(HOST, self.config.broker["port"])
        self._client.loop_start()
        if not self._ready.wait(WAIT_S):
            raise TimeoutError("mosquitto did not confirm the subscription")
        return "-"

    def _on_connect(self, client: Any, *_: object) -> None:
        if self.config.receives:
            client.subscribe(TOPIC)
        else:
            self._ready.set()

    def _on_disconnect(self, *_: object) -> None:
        self.delivery_check.errors += 1

    async def publish(self, payload: bytes) -> None:
        self._last = self._client.publish(TOPIC, payload)

    async def flush(self) -> None:
        self._last.wait_for_publish(WAIT_S)
