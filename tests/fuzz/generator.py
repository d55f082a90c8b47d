"""Random messages of every kind, generated from the annotations of their fields, and corrupted frames.

Like `tests/wire/wire_strategies.py`, but with plain random numbers, because it generates thousands per second, and with
values that an attacker would choose: ids of real peers, ends of ranges, unreachable addresses.
"""

import types
from enum import IntEnum
from random import Random
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from broadloom.wire.broadcast_frame import BUNDLE_MESSAGES_MAX, PRIORITY_MAX, Broadcast, encode_broadcast
from broadloom.wire.codec import HEAD, LENGTH_BYTES, WireMessage, encode, kinds
from broadloom.wire.direct_messages import (
    HEADED,
    MORE,
    Cancel,
    DirectClose,
    Reply,
    RequestStatus,
    Tell,
    encode_request,
)
from broadloom.wire.exchange_messages import MAGIC, VERSION, Hello
from broadloom.wire.fields import (
    CHANNEL_ID_BYTES,
    OWNER_HASH_BYTES,
    PROOF_BYTES_MAX,
    Bool,
    ChannelId,
    CredentialBytes,
    DocumentHash,
    Hyper,
    OwnerDocumentBytes,
    PartBytes,
    ProofBytes,
    Text,
    UInt,
)
from broadloom.wire.framing import FRAME_BYTES_MAX
from broadloom.wire.link_messages import Heartbeat
from broadloom.wire.payload_kind import PayloadKind
from broadloom.wire.receipt_messages import DeliveryReport, encode_report
from broadloom.wire.roster_messages import INCARNATION_MAX, MemberRecord, encode_record
from broadloom.wire.types import Address, AuthorState, PeerId, PeerInfo, SignedRecord, SignedReport, TreePosition

UINT_MAX = (1 << 32) - 1
HYPER_MAX = (1 << 64) - 1
HOSTS = ("", "a..b", "a" * 255, "ü" * 100, "127.0.0.1", "127.0.0.1", "::1", ".", "%", "[", "\n")
"""Hosts that victims may dial: none is outside this machine, and none causes a DNS lookup."""
PORTS = (0, 1)
INTEGERS = (0, 1, 2, 3, 5, 64, 255, 4096)
INVENTED_IDS = 64
"""Number of invented peer ids; small, so that some occur repeatedly."""


class AttackerKnowledge(NamedTuple):
    """What an attacker knows about its victims."""

    channel_id: bytes
    victims: tuple[PeerInfo, ...]
    signed: bool
    own_id: int
    false_claims: bool = False
    """Whether to make false claims about honest authors. A known weakness: these can be muted by them."""


def hints_of(kind: Any) -> dict[str, Any]:
    """The annotations of the wire fields, in order."""
    hints = get_type_hints(kind, include_extras=True)
    names = kind.__dataclass_fields__ if issubclass(kind, WireMessage) else kind._fields
    return {name: hints[name] for name in names}


_KINDS = tuple(kinds().values())
_HINTS = {kind: hints_of(kind) for kind in (*_KINDS, AuthorState, TreePosition, PeerInfo)}


class Generator:
    def __init__(self, random: Random, knowledge: AttackerKnowledge) -> None:
        self.random = random
        self.knowledge = knowledge
        self._sequence = 0
        self._request_id = 0

    def message(self) -> bytes:
        """A frame of any kind; one in four is a broadcast."""
        if self.random.random() < 0.25:
            return self.broadcast()
        return encode(self._random_message(self.random.choice(_KINDS)))

    def direct_message(self) -> bytes:
        """A frame for a direct connection; ids mostly rise, as they must."""
        random = self.random
        self._request_id += 1
        request_id = random.choice((self._request_id, self._request_id, random.randrange(5), self._uint()))
        flags, data = random.choice((0, 0, MORE, HEADED, self._uint())), self._bytes()
        match random.randrange(8):
            case 0 | 1 | 2:
                return encode_request(request_id, flags, self._uint(), random.choice((0, 0, self._uint())), data)
            case 3:
                return encode(Tell(random.choice((0, self._uint())), flags, data))
            case 4:
                return encode(Cancel(request_id))
            case 5:
                return encode(Reply(request_id, random.choice(list(RequestStatus)), flags, data))
            case 6:
                return encode(random.choice((DirectClose(), Heartbeat())))
            case _:
                return self.message()

    def hello(self) -> bytes:
        """A valid Hello."""
        address = Address("127.0.0.1", self.random.choice(PORTS))
        has_position = self.random.random() < 0.8
        knowledge = self.knowledge
        return encode(
            Hello(MAGIC, VERSION, knowledge.channel_id, knowledge.own_id, address, has_position, knowledge.signed)
        )

    def broadcast(self) -> bytes:
        random = self.random
        honest = self.knowledge.signed and random.random() < 0.3
        author = random.choice(self.knowledge.victims).peer_id if honest else self._stranger()
        self._sequence += 1
        messages = self._messages()
        sequence = random.choice((self._sequence, self._sequence, self._hyper() or 1))
        sequence = min(sequence, HYPER_MAX + 1 - len(messages))
        self._sequence += len(messages) - 1
        offset = random.choice((sequence - 1, 0, random.randrange(sequence)))
        return encode_broadcast(
            Broadcast(
                author,
                sequence,
                sequence - min(offset, UINT_MAX),
                messages,
                hops=self._uint(),
                age_ms=random.choice((0, 0, 100, self._uint())),
                kind=random.choice((*PayloadKind, self._uint())),
                priority=random.choice((0, 0, PRIORITY_MAX, random.randint(0, PRIORITY_MAX))),
                ttl_ms=self._uint(),
                signature=random.randbytes(random.choice((0, 64, 128))),
            )
        )

    def _messages(self) -> tuple[bytes, ...]:
        """One message or a bundle, of equal, mixed or zero sizes, and rarely of the maximum count."""
        random = self.random
        if random.random() < 0.005:
            return (b"",) * BUNDLE_MESSAGES_MAX
        sizes: tuple[int, ...] = (0, 1, 40, 3000)
        count = random.choice((1, 1, 1, 2, 5, 60))
        if random.random() < 0.5:
            sizes = (random.choice(sizes),)
        return tuple(random.randbytes(random.choice(sizes)) for _ in range(count))

    def _random_message(self, kind: Any) -> Any:
        values = {name: self._random_value(hint) for name, hint in _HINTS[kind].items()}
        if kind in (AuthorState, TreePosition) and not self.knowledge.false_claims:
            values["author"] = self._stranger()
        if kind is Hello:
            # Only TLS protects the ids of others, so on a plain channel using one would be no finding.
            values["peer_id"] = self.knowledge.own_id
            if self.random.random() < 0.7:
                values |= {"magic": MAGIC, "version": VERSION, "channel": self.knowledge.channel_id}
        if kind is PeerInfo and values["peer_id"] in {each.peer_id for each in self.knowledge.victims}:
            return next(each for each in self.knowledge.victims if each.peer_id == values["peer_id"])
        return kind(**values)

    def _random_value(self, hint: Any) -> Any:
        random = self.random
        if hint in _RANDOM_VALUES:
            return _RANDOM_VALUES[hint](self)
        if get_origin(hint) is Annotated:
            return self._random_value(get_args(hint)[0])
        if get_origin(hint) in (Union, types.UnionType):
            each = random.choice(get_args(hint))
            return None if each is type(None) else self._random_value(each)
        if get_origin(hint) is tuple:
            return tuple(self._random_value(get_args(hint)[0]) for _ in range(random.choice((0, 1, 2, 4, 60))))
        if isinstance(hint, type) and issubclass(hint, IntEnum):
            return random.choice(list(hint))
        if hint in (AuthorState, TreePosition, PeerInfo):
            return self._random_message(hint)
        if isinstance(hint, type) and issubclass(hint, tuple):
            return hint(**{name: self._random_value(each) for name, each in get_type_hints(hint).items()})
        raise TypeError(f"cannot generate {hint}")

    def _uint(self) -> int:
        return self.random.choice((*INTEGERS, UINT_MAX, self.random.getrandbits(32)))

    def _hyper(self) -> int:
        random = self.random
        if random.random() < 0.3:
            return random.choice(self.knowledge.victims).peer_id
        return random.choice((*INTEGERS, self.knowledge.own_id, UINT_MAX, HYPER_MAX, random.getrandbits(64)))

    def _stranger(self) -> int:
        return self.random.choice(
            (self.knowledge.own_id, 1000 + self.random.randrange(INVENTED_IDS), self.random.getrandbits(64))
        )

    def _address(self) -> Address:
        return Address(self.random.choice(HOSTS), self.random.choice(PORTS))

    def _text(self) -> str:
        return self.random.choice(("", "text", "ü" * 200, "\n\x1b[31m"))

    def _bytes(self) -> bytes:
        return self.random.randbytes(self.random.choice((0, 3, 900, 4096)))

    def _signed_record(self) -> SignedRecord:
        """Mostly a well-formed record of anyone; signatures of others cannot be made."""
        random = self.random
        record = MemberRecord(
            self._hyper(),
            random.choice((1, 2, 1000, INCARNATION_MAX, self._hyper())),
            random.random() < 0.2,
            random.random() < 0.2,
            self._address(),
            random.choice(("", "ann", "ü" * 20)),
            tuple(self._hyper() for _ in range(random.choice((0, 1, 4, 32)))),
            tuple(self._hyper() for _ in range(random.choice((0, 0, 3)))),
            (),
        )
        body = encode_record(record) if random.random() < 0.8 else random.randbytes(random.choice((0, 15, 16, 2048)))
        signature = random.randbytes(random.choice((0, 0, 64)))
        return SignedRecord(body, signature, random.randbytes(random.choice((0, 0, 900))))

    def _signed_report(self) -> SignedReport:
        random = self.random
        ends = tuple(self._hyper() for _ in range(random.choice((0, 0, 1, 2, 16))))
        report = DeliveryReport(self._hyper(), self._hyper(), self._hyper(), self._hyper(), ends)
        body = encode_report(report) if random.random() < 0.8 else random.randbytes(random.choice((0, 15, 36, 2048)))
        return SignedReport(body, random.randbytes(random.choice((0, 0, 64))))

    def _channel(self) -> bytes:
        known = self.random.random() < 0.8
        return self.knowledge.channel_id if known else self.random.randbytes(CHANNEL_ID_BYTES)


_RANDOM_VALUES: dict[Any, Any] = {
    UInt: Generator._uint,
    Hyper: Generator._hyper,
    Bool: lambda generator: generator.random.random() < 0.5,
    Text: Generator._text,
    ChannelId: Generator._channel,
    DocumentHash: lambda self: self.random.randbytes(OWNER_HASH_BYTES),
    OwnerDocumentBytes: lambda self: self.random.randbytes(self.random.choice((0, 1, 64, 700))),
    CredentialBytes: Generator._bytes,
    PartBytes: Generator._bytes,
    ProofBytes: lambda generator: generator.random.randbytes(generator.random.choice((0, 144, PROOF_BYTES_MAX))),
    Address: Generator._address,
    # Inside named tuples a bare int is a hyper; the one exception, the port, is in the addresses.
    int: Generator._hyper,
    SignedRecord: Generator._signed_record,
    SignedReport: Generator._signed_report,
    PeerId: Generator._hyper,
}


def mutate(frame: bytes, random: Random, other: bytes = b"") -> bytes:
    """Flip, cut, repeat, extend or splice with another frame; mostly with the length corrected."""
    mutated = bytearray(frame)
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(mutated) + 1)
        match random.randrange(7):
            case 0 if at < len(mutated):
                mutated[at] ^= 1 << random.randrange(8)
            case 1:
                word = random.choice((0, 1, 2, 257, 65536, 1 << 31, UINT_MAX))
                mutated[at & ~3 : (at & ~3) + 4] = word.to_bytes(4, "big")
            case 2:
                del mutated[at:]
            case 3:
                del mutated[at : at + random.randrange(9)]
            case 4:
                mutated[at:at] = random.randbytes(random.randrange(9))
            case 5:
                mutated[at:] = other[random.randrange(len(other) + 1) :]
            case _:
                mutated += mutated[at:]
    if len(mutated) < HEAD.size or random.random() < 0.15:
        return bytes(mutated)
    del mutated[FRAME_BYTES_MAX:]
    return (len(mutated) - LENGTH_BYTES).to_bytes(LENGTH_BYTES, "big") + bytes(mutated[LENGTH_BYTES:])


def split_randomly(data: bytes, random: Random) -> list[bytes]:
    """Chunks as a network might deliver them."""
    if random.random() < 0.4:
        return [data]
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(random.choice((1, 3, 20))))
    return [data[low:high] for low, high in zip([0, *cuts], [*cuts, len(data)], strict=True) if low < high]
