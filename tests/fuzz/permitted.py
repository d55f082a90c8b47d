"""What would harm honest peers by the rules, so that it would be no finding: it is not sent.

On a channel without signatures every member can speak in every other's name. And everywhere a tale of what an honest
author has said is believed within limits; `--hearsay` lets such tales through.
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
    honest = {contact.peer_id for contact in knowledge.victims}
    return any(_is_harm(frame, honest, knowledge) for frame in _frames(data))


def _frames(data: bytes) -> Iterator[bytes]:
    """As a victim would take them, up to where it hangs up."""
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
        return not knowledge.false_claims and any(have.author in honest for have in message.authors)
    if isinstance(message, IHave):
        return not knowledge.false_claims and any(standing.author in honest for standing in message.positions)
    return False
