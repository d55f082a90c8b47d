"""Frames whose harm to honest peers is known and permitted, so they are not sent.

On a channel without signatures every member can send in the name of any other. And false claims about honest authors
are accepted within limits; `--false-claims` sends them, too.
"""

from collections.abc import Iterator

from broadloom.wire import WireError, decode
from broadloom.wire.broadcast_frame import BROADCAST, read_header
from broadloom.wire.codec import HEAD, LENGTH_BYTES, WireMessage, number_of
from broadloom.wire.exchange_messages import Hello
from broadloom.wire.framing import FRAME_BYTES_MAX
from broadloom.wire.link_messages import Digest, IHave, LastKnown
from tests.fuzz.generator import AttackerKnowledge


def is_permitted_harm(data: bytes, knowledge: AttackerKnowledge) -> bool:
    honest = {victim.peer_id for victim in knowledge.victims}
    return any(_is_harm(frame, honest, knowledge) for frame in _frames(data))


def _frames(data: bytes) -> Iterator[bytes]:
    """The frames that a victim would process before it closes the connection."""
    position = 0
    while len(data) - position >= HEAD.size:
        size = LENGTH_BYTES + int.from_bytes(data[position : position + LENGTH_BYTES], "big")
        if not HEAD.size <= size <= FRAME_BYTES_MAX:
            return
        yield data[position : position + size]
        position += size


def _is_harm(frame: bytes, honest: set[int], knowledge: AttackerKnowledge) -> bool:
    try:
        if number_of(frame) == BROADCAST:
            return not knowledge.signed and read_header(frame)[0] in honest
        return _is_false_claim(decode(frame), honest, knowledge)
    except WireError:
        return False


def _is_false_claim(message: WireMessage, honest: set[int], knowledge: AttackerKnowledge) -> bool:
    if isinstance(message, Hello):
        return not knowledge.signed and message.peer_id in honest
    if isinstance(message, Digest | LastKnown):
        return not knowledge.false_claims and any(state.author in honest for state in message.authors)
    if isinstance(message, IHave):
        return not knowledge.false_claims and any(position.author in honest for position in message.positions)
    return False
