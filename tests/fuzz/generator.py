"""Random messages of every kind, made from the annotations of their fields; and frames that were spoilt.

Like `tests/wire/wire_strategies.py`, but with plain chance, because it must make thousands a second, and with numbers
that an attacker would choose: the ids of real peers, the ends of ranges, places where nobody answers.
"""

import types
from enum import IntEnum
from random import Random
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from broadloom.wire.broadcast_frame import BUNDLE_MESSAGES_MAX, PRIORITY_MAX, Broadcast, PayloadKind, encode_broadcast
from broadloom.wire.codec import HEAD, LENGTH_BYTES, WireMessage, encode, kinds
from broadloom.wire.exchange_messages import MAGIC, VERSION, Hello
from broadloom.wire.fields import CHANNEL_ID_BYTES, Bool, ChannelId, CredentialBytes, Hyper, Text, UInt
from broadloom.wire.framing import FRAME_BYTES_MAX
from broadloom.wire.types import Address, AuthorState, PeerInfo, TreePosition

UINT_MAX = (1 << 32) - 1
HYPER_MAX = (1 << 64) - 1
HOSTS = ("", "a..b", "a" * 255, "ü" * 100, "127.0.0.1", "127.0.0.1", "::1", ".", "%", "[", "\n")
"""Places that are dialled by those who believe in them: none is outside this machine, and none asks a name server."""
PORTS = (0, 1)
INTEGERS = (0, 1, 2, 3, 5, 64, 255, 4096)
NAMES = 64
"""Made-up peers are drawn from so many, so that some are named again."""


class AttackerKnowledge(NamedTuple):
    """What an attacker knows of its victims."""

    channel_id: bytes
    victims: tuple[PeerInfo, ...]
    signed: bool
    own_id: int
    """The attacker's own peer id."""
    false_claims: bool = False
    """Whether tales may be told of what honest authors have said. They can be muted by them, as is known."""


def hints_of(kind: Any) -> dict[str, Any]:
    """The annotations of the fields that stand on the wire, in order."""
    hints = get_type_hints(kind, include_extras=True)
    names = kind.__dataclass_fields__ if issubclass(kind, WireMessage) else kind._fields
    return {name: hints[name] for name in names}


_KINDS = tuple(kinds().values())
_HINTS = {kind: hints_of(kind) for kind in (*_KINDS, AuthorState, TreePosition, PeerInfo)}


class Generator:
    def __init__(self, chance: Random, knowledge: AttackerKnowledge) -> None:
        self.chance = chance
        self.knowledge = knowledge
        self._sequence = 0

    def message(self) -> bytes:
        """A frame of any kind; one in four is a broadcast, which all else is there for."""
        if self.chance.random() < 0.25:
            return self.broadcast()
        return encode(self._random_message(self.chance.choice(_KINDS)))

    def hello(self) -> bytes:
        """One that is believed."""
        address = Address("127.0.0.1", self.chance.choice(PORTS))
        settled = self.chance.random() < 0.8
        knows = self.knowledge
        return encode(Hello(MAGIC, VERSION, knows.channel_id, knows.own_id, address, settled, knows.signed))

    def broadcast(self) -> bytes:
        chance = self.chance
        honest = self.knowledge.signed and chance.random() < 0.3
        author = chance.choice(self.knowledge.victims).peer_id if honest else self._stranger()
        self._sequence += 1
        messages = self._messages()
        sequence = chance.choice((self._sequence, self._sequence, self._hyper() or 1))
        sequence = min(sequence, HYPER_MAX + 1 - len(messages))
        self._sequence += len(messages) - 1
        offset = chance.choice((sequence - 1, 0, chance.randrange(sequence)))
        return encode_broadcast(
            Broadcast(
                author,
                sequence,
                sequence - min(offset, UINT_MAX),
                messages,
                hops=self._uint(),
                age_ms=chance.choice((0, 0, 100, self._uint())),
                kind=chance.choice((*PayloadKind, self._uint())),
                priority=chance.choice((0, 0, PRIORITY_MAX, chance.randint(0, PRIORITY_MAX))),
                ttl_ms=self._uint(),
                signature=chance.randbytes(chance.choice((0, 64, 128))),
            )
        )

    def _messages(self) -> tuple[bytes, ...]:
        """One, or a bundle: of equal sizes, of mixed sizes, of nothing, and seldom of as many as there may be."""
        chance = self.chance
        if chance.random() < 0.005:
            return (b"",) * BUNDLE_MESSAGES_MAX
        sizes: tuple[int, ...] = (0, 1, 40, 3000)
        count = chance.choice((1, 1, 1, 2, 5, 60))
        if chance.random() < 0.5:
            sizes = (chance.choice(sizes),)
        return tuple(chance.randbytes(chance.choice(sizes)) for _ in range(count))

    def _random_message(self, kind: Any) -> Any:
        made = {name: self._random_value(hint) for name, hint in _HINTS[kind].items()}
        if kind in (AuthorState, TreePosition) and not self.knowledge.false_claims:
            made["author"] = self._stranger()
        if kind is Hello:
            # Others' ids are for TLS to guard, and on a plain channel nobody does.
            made["peer_id"] = self.knowledge.own_id
            if self.chance.random() < 0.7:
                made |= {"magic": MAGIC, "version": VERSION, "channel": self.knowledge.channel_id}
        if kind is PeerInfo and made["peer_id"] in {each.peer_id for each in self.knowledge.victims}:
            return next(each for each in self.knowledge.victims if each.peer_id == made["peer_id"])
        return kind(**made)

    def _random_value(self, hint: Any) -> Any:
        chance = self.chance
        if hint in _RANDOM_VALUES:
            return _RANDOM_VALUES[hint](self)
        if get_origin(hint) is Annotated:
            return self._random_value(get_args(hint)[0])
        if get_origin(hint) in (Union, types.UnionType):
            each = chance.choice(get_args(hint))
            return None if each is type(None) else self._random_value(each)
        if get_origin(hint) is tuple:
            return tuple(self._random_value(get_args(hint)[0]) for _ in range(chance.choice((0, 1, 2, 4, 60))))
        if isinstance(hint, type) and issubclass(hint, IntEnum):
            return chance.choice(list(hint))
        if hint in (AuthorState, TreePosition, PeerInfo):
            return self._random_message(hint)
        if isinstance(hint, type) and issubclass(hint, tuple):
            return hint(**{name: self._random_value(each) for name, each in get_type_hints(hint).items()})
        raise TypeError(f"no way to make up {hint}")

    def _uint(self) -> int:
        return self.chance.choice((*INTEGERS, UINT_MAX, self.chance.getrandbits(32)))

    def _hyper(self) -> int:
        chance = self.chance
        if chance.random() < 0.3:
            return chance.choice(self.knowledge.victims).peer_id
        return chance.choice((*INTEGERS, self.knowledge.own_id, UINT_MAX, HYPER_MAX, chance.getrandbits(64)))

    def _stranger(self) -> int:
        return self.chance.choice(
            (self.knowledge.own_id, 1000 + self.chance.randrange(NAMES), self.chance.getrandbits(64))
        )

    def _address(self) -> Address:
        return Address(self.chance.choice(HOSTS), self.chance.choice(PORTS))

    def _text(self) -> str:
        return self.chance.choice(("", "text", "ü" * 200, "\n\x1b[31m"))

    def _bytes(self) -> bytes:
        return self.chance.randbytes(self.chance.choice((0, 3, 900, 4096)))

    def _channel(self) -> bytes:
        known = self.chance.random() < 0.8
        return self.knowledge.channel_id if known else self.chance.randbytes(CHANNEL_ID_BYTES)


_RANDOM_VALUES: dict[Any, Any] = {
    UInt: Generator._uint,
    Hyper: Generator._hyper,
    Bool: lambda made: made.chance.random() < 0.5,
    Text: Generator._text,
    ChannelId: Generator._channel,
    CredentialBytes: Generator._bytes,
    Address: Generator._address,
    # Inside named tuples a bare int is a hyper; the one exception, the port, is in the addresses.
    int: Generator._hyper,
}


def mutate(frame: bytes, chance: Random, other: bytes = b"") -> bytes:
    """Flipped, cut, doubled, lengthened, spliced with another; mostly with a length that is true again."""
    made = bytearray(frame)
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(made) + 1)
        match chance.randrange(7):
            case 0 if at < len(made):
                made[at] ^= 1 << chance.randrange(8)
            case 1:
                word = chance.choice((0, 1, 2, 257, 65536, 1 << 31, UINT_MAX))
                made[at & ~3 : (at & ~3) + 4] = word.to_bytes(4, "big")
            case 2:
                del made[at:]
            case 3:
                del made[at : at + chance.randrange(9)]
            case 4:
                made[at:at] = chance.randbytes(chance.randrange(9))
            case 5:
                made[at:] = other[chance.randrange(len(other) + 1) :]
            case _:
                made += made[at:]
    if len(made) < HEAD.size or chance.random() < 0.15:
        return bytes(made)
    del made[FRAME_BYTES_MAX:]
    return (len(made) - LENGTH_BYTES).to_bytes(LENGTH_BYTES, "big") + bytes(made[LENGTH_BYTES:])


def split_randomly(data: bytes, chance: Random) -> list[bytes]:
    """As the network might cut it."""
    if chance.random() < 0.4:
        return [data]
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.choice((1, 3, 20))))
    return [data[low:high] for low, high in zip([0, *cuts], [*cuts, len(data)], strict=True) if low < high]
