"""Attacks as data: generated at random, run, logged, and run again for a replay."""

import asyncio
import json
import socket
import ssl
import struct
from collections import deque
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

from broadloom.protocol import ChannelName
from broadloom.security import PeerCredentials
from broadloom.wire import PeerInfo, encode
from broadloom.wire.direct_messages import DirectOpen
from broadloom.wire.exchange_messages import LinkRequest
from broadloom.wire.link_messages import Digest
from tests.attack.attacker import Attacker
from tests.fuzz.generator import AttackerKnowledge, Generator, mutate, split_randomly
from tests.fuzz.permitted import is_permitted_harm
from tests.fuzz.victims import KEY

LAYERS = {"tcp": 2, "handshake": 2, "below": 1, "tls": 2, "exchange": 3, "link": 5, "direct": 3}
"""Weights of the layers: bytes on TCP, a corrupted TLS handshake, bytes below TLS after it, bytes within TLS, messages
of an exchange, messages of a neighbor, messages on a direct connection."""
ONLY_TLS = ("handshake", "below", "tls")
SCRIPTS_MAX = 300
SCRIPT_LOG_BYTES_MAX = 8 << 20
SCRIPT_S = 4.0
PAUSE_S = 0.01


@dataclass
class Script:
    mode: str
    layer: str
    victim: int
    source: str
    chunks: list[str] = field(default_factory=list)
    """In hex, with a pause before each."""
    abrupt: bool = False
    """End with a TCP reset instead of waiting for the victim to close."""

    @property
    def size(self) -> int:
        return sum(len(chunk) // 2 for chunk in self.chunks)


class ScriptLog:
    """The last scripts, written to a file when something is found."""

    def __init__(self) -> None:
        self._scripts: deque[Script] = deque(maxlen=SCRIPTS_MAX)

    def add(self, script: Script) -> None:
        self._scripts.append(script)

    def write(self, path: Path) -> None:
        left, lines = SCRIPT_LOG_BYTES_MAX, []
        for script in reversed(self._scripts):
            left -= script.size
            if left < 0:
                break
            lines.append(json.dumps(asdict(script)))
        path.write_text("\n".join(reversed(lines)) + "\n", encoding="utf-8")


def read_scripts(path: Path) -> list[Script]:
    return [Script(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines() if line]


class Target:
    """A channel of victims, as an attacker knows it."""

    def __init__(self, mode: str, name: str, victims: tuple[PeerInfo, ...], *, false_claims: bool) -> None:
        self.mode = mode
        self.name = ChannelName.parse(name)
        self.victims = victims
        self.captured: deque[bytes] = deque(maxlen=500)
        """Frames that victims sent to hostile neighbors."""
        self._false_claims = false_claims
        self._credentials: PeerCredentials | None = None
        self._left = 0

    def credentials(self) -> PeerCredentials | None:
        """Valid credentials, renewed only now and then because creating them takes longer than an attack."""
        if self.mode == "plain":
            return None
        if self._left == 0 or self._credentials is None:
            self._credentials, self._left = PeerCredentials.from_key(self.name, KEY), 20
        self._left -= 1
        return self._credentials

    def knowledge(self, own_id: int) -> AttackerKnowledge:
        return AttackerKnowledge(self.name.id, self.victims, self.mode != "plain", own_id, self._false_claims)


class ScriptRunner:
    """Runs scripts and generates them on the way: what is sent on a link depends on what was received there."""

    def __init__(self, target: Target, random: Random) -> None:
        self._target = target
        self._random = random

    def draw(self) -> Script:
        random = self._random
        layers = {layer: weight for layer, weight in LAYERS.items() if self._allows(layer)}
        (layer,) = random.choices(list(layers), list(layers.values()))
        source = f"127.0.3.{1 + random.randrange(200)}"
        victim = random.randrange(len(self._target.victims))
        return Script(self._target.mode, layer, victim, source, abrupt=random.random() < 0.5)

    def _allows(self, layer: str) -> bool:
        return self._target.mode != "plain" or layer not in ONLY_TLS

    async def run(self, script: Script) -> None:
        """Run a script; that the victim closes the connection early is not a failure."""
        replayed = [bytes.fromhex(chunk) for chunk in script.chunks]
        needs_credentials = script.layer in ("tls", "below", "exchange", "link", "direct")
        address = str(self._target.victims[script.victim].address)
        attacker = None
        with suppress(OSError, ssl.SSLError, TimeoutError, AssertionError):
            async with asyncio.timeout(SCRIPT_S):
                credentials = self._target.credentials() if needs_credentials else None
                attacker = await Attacker.dial(
                    address, credentials, channel_id=self._target.name.id, source=script.source
                )
                await self._send(attacker, script, replayed)
                if not script.abrupt:
                    await attacker.until_closed(self._random.random())
        if attacker is not None:
            self._target.captured.extend(map(bytes, attacker.frames[-20:]))
            if script.abrupt:
                _reset_on_close(attacker)
            attacker.close()

    async def _send(self, attacker: Attacker, script: Script, replayed: list[bytes]) -> None:
        generator = Generator(self._random, self._target.knowledge(attacker.peer_id))
        if self._target.mode == "plain":
            attacker.peer_id = self._random.getrandbits(64)
            generator.knowledge = generator.knowledge._replace(own_id=attacker.peer_id)
        if script.layer == "direct":
            attacker.send(generator.hello(), encode(DirectOpen(1, 128, 4 << 20)))
        elif script.layer == "link":
            # Becoming a neighbor is not part of the script: a replay has to do it again.
            attacker.send(generator.hello(), encode(LinkRequest()))
            await asyncio.sleep(PAUSE_S)
            attacker.send(encode(Digest(False, self._random.random() < 0.5, (), ())))
            if attacker.credentials is not None:
                attacker.send(attacker.credential())
        for chunk in replayed or split_randomly(self._data(generator, attacker, script.layer), self._random):
            if not replayed:
                script.chunks.append(chunk.hex())
            if script.layer in ("tcp", "handshake", "below"):
                attacker.send_raw(chunk)
            else:
                attacker.send(chunk)
            await attacker.drain()
            await asyncio.sleep(self._random.choice((0, 0, PAUSE_S)))

    def _data(self, generator: Generator, attacker: Attacker, layer: str) -> bytes:
        random = self._random
        match layer:
            case "tcp" | "tls":
                return random.randbytes(random.choice((1, 7, 100, 5000)))
            case "handshake":
                return mutate(_client_hello(self._target.credentials()), random, random.randbytes(50))
            case "below":
                record = b"\x17\x03\x03" + random.randbytes(random.choice((2, 40, 3000)))
                return random.choice((record, random.randbytes(60)))
            case "exchange":
                hello = generator.hello() if random.random() < 0.8 else b""
                return hello + self._frames(generator, random.choice((1, 2, 5)))
            case "direct":
                return b"".join(self._direct_frame(generator) for _ in range(random.choice((1, 10, 60))))
            case _:
                return self._frames(generator, random.choice((1, 10, 60)))

    def _direct_frame(self, generator: Generator) -> bytes:
        frame = generator.direct_message()
        return mutate(frame, self._random, generator.message()) if self._random.random() < 0.05 else frame

    def _frames(self, generator: Generator, count: int) -> bytes:
        while True:
            data = b"".join(self._frame(generator) for _ in range(count))
            if not is_permitted_harm(data, generator.knowledge):
                return data

    def _frame(self, generator: Generator) -> bytes:
        captured = self._target.captured
        if captured and self._random.random() < 0.3:
            frame = self._random.choice(captured)
            return frame if self._random.random() < 0.2 else mutate(frame, self._random, self._random.choice(captured))
        frame = generator.message()
        return mutate(frame, self._random, generator.message()) if self._random.random() < 0.15 else frame


def _client_hello(credentials: PeerCredentials | None) -> bytes:
    assert credentials is not None
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = credentials.client_context.wrap_bio(incoming, outgoing, server_hostname=credentials.server_name)
    with suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def _reset_on_close(attacker: Attacker) -> None:
    sock = attacker.socket
    if sock is not None:
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
