"""What is done to a victim, as data: made by chance, carried out, kept, and carried out again for a replay."""

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
from broadloom.wire.exchange_messages import LinkRequest
from broadloom.wire.link_messages import Digest
from tests.attack.attacker import Attacker
from tests.fuzz.generator import AttackerKnowledge, Generator, mutate, split_randomly
from tests.fuzz.permitted import is_permitted_harm
from tests.fuzz.victims import KEY

LAYERS = {"tcp": 2, "handshake": 2, "below": 1, "tls": 2, "call": 3, "link": 5}
"""How often each is chosen: bytes on TCP, a spoilt TLS handshake, bytes below TLS after it, bytes within TLS, messages
on a call, messages of a neighbour."""
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
    """In hex, each with a moment before it."""
    abrupt: bool = False
    """Ends with a reset, else the victim is waited for."""

    @property
    def size(self) -> int:
        return sum(len(chunk) // 2 for chunk in self.chunks)


class ScriptLog:
    """The last scripts, for the file that a finding leaves behind."""

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
    """One channel of victims, as an attacker knows it."""

    def __init__(self, mode: str, name: str, victims: tuple[PeerInfo, ...], *, false_claims: bool) -> None:
        self.mode = mode
        self.name = ChannelName.parse(name)
        self.victims = victims
        self.captured: deque[bytes] = deque(maxlen=500)
        """Frames that victims sent to their hostile neighbours."""
        self._false_claims = false_claims
        self._member: PeerCredentials | None = None
        self._left = 0

    def credentials(self) -> PeerCredentials | None:
        """A genuine member's; a new one now and then, since making one takes longer than an attack."""
        if self.mode == "plain":
            return None
        if self._left == 0 or self._member is None:
            self._member, self._left = PeerCredentials.from_key(self.name, KEY), 20
        self._left -= 1
        return self._member

    def knowledge(self, own: int) -> AttackerKnowledge:
        return AttackerKnowledge(self.name.id, self.victims, self.mode != "plain", own, self._false_claims)


class ScriptRunner:
    """Carries scripts out, making them as it goes: what is said on a link depends on what was heard there."""

    def __init__(self, target: Target, chance: Random) -> None:
        self._target = target
        self._chance = chance

    def draw(self) -> Script:
        chance = self._chance
        layers = {layer: weight for layer, weight in LAYERS.items() if self._allows(layer)}
        (layer,) = chance.choices(list(layers), list(layers.values()))
        source = f"127.0.3.{1 + chance.randrange(200)}"
        victim = chance.randrange(len(self._target.victims))
        return Script(self._target.mode, layer, victim, source, abrupt=chance.random() < 0.5)

    def _allows(self, layer: str) -> bool:
        return self._target.mode != "plain" or layer not in ONLY_TLS

    async def run(self, script: Script) -> None:
        """What cannot be carried out to its end, because the victim hung up, is no failure."""
        again = [bytes.fromhex(chunk) for chunk in script.chunks]
        inside = script.layer in ("tls", "below", "call", "link")
        address = str(self._target.victims[script.victim].address)
        attacker = None
        with suppress(OSError, ssl.SSLError, TimeoutError, AssertionError):
            async with asyncio.timeout(SCRIPT_S):
                credentials = self._target.credentials() if inside else None
                attacker = await Attacker.dial(
                    address, credentials, channel_id=self._target.name.id, source=script.source
                )
                await self._send(attacker, script, again)
                if not script.abrupt:
                    await attacker.until_closed(self._chance.random())
        if attacker is not None:
            self._target.captured.extend(attacker.frames[-20:])
            if script.abrupt:
                _reset_on_close(attacker)
            attacker.close()

    async def _send(self, attacker: Attacker, script: Script, again: list[bytes]) -> None:
        made = Generator(self._chance, self._target.knowledge(attacker.peer_id))
        if self._target.mode == "plain":
            attacker.peer_id = self._chance.getrandbits(64)
            made.knowledge = made.knowledge._replace(own_id=attacker.peer_id)
        if script.layer == "link":
            # The way to a link is not part of what is replayed: it has to be walked anew.
            attacker.send(made.hello(), encode(LinkRequest()))
            await asyncio.sleep(PAUSE_S)
            attacker.send(encode(Digest(False, self._chance.random() < 0.5, (), ())))
            if attacker.credentials is not None:
                attacker.send(attacker.credential())
        for chunk in again or split_randomly(self._data(made, attacker, script.layer), self._chance):
            if not again:
                script.chunks.append(chunk.hex())
            if script.layer in ("tcp", "handshake", "below"):
                attacker.send_raw(chunk)
            else:
                attacker.send(chunk)
            await attacker.drain()
            await asyncio.sleep(self._chance.choice((0, 0, PAUSE_S)))

    def _data(self, made: Generator, attacker: Attacker, layer: str) -> bytes:
        chance = self._chance
        match layer:
            case "tcp" | "tls":
                return chance.randbytes(chance.choice((1, 7, 100, 5000)))
            case "handshake":
                return mutate(_client_hello(self._target.credentials()), chance, chance.randbytes(50))
            case "below":
                record = b"\x17\x03\x03" + chance.randbytes(chance.choice((2, 40, 3000)))
                return chance.choice((record, chance.randbytes(60)))
            case "call":
                hello = made.hello() if chance.random() < 0.8 else b""
                return hello + self._frames(made, chance.choice((1, 2, 5)))
            case _:
                return self._frames(made, chance.choice((1, 10, 60)))

    def _frames(self, made: Generator, count: int) -> bytes:
        while True:
            data = b"".join(self._frame(made) for _ in range(count))
            if not is_permitted_harm(data, made.knowledge):
                return data

    def _frame(self, made: Generator) -> bytes:
        captured = self._target.captured
        if captured and self._chance.random() < 0.3:
            whole = self._chance.choice(captured)
            return whole if self._chance.random() < 0.2 else mutate(whole, self._chance, self._chance.choice(captured))
        frame = made.message()
        return mutate(frame, self._chance, made.message()) if self._chance.random() < 0.15 else frame


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
