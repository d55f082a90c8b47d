"""What would harm honest peers by the rules, so that it would be no finding: it is not sent.

On a channel without signatures every member can speak in every other's name. And everywhere a tale of what an honest
author has said is believed within limits; `--hearsay` lets such tales through.
"""

from collections.abc import Iterator

from tests.fuzz.generator import Knows
from weft.wire import WireError, decode
from weft.wire.broadcast import BROADCAST, name_of
from weft.wire.calls import Hello
from weft.wire.codec import HEAD, LENGTH_BYTES, Message, number_of
from weft.wire.framing import FRAME_BYTES_MAX
from weft.wire.links import Announce, Greeting, Known


def is_permitted_harm(data: bytes, knows: Knows) -> bool:
    honest = {contact.peer for contact in knows.victims}
    return any(_is_harm(frame, honest, knows) for frame in _frames(data))


def _frames(data: bytes) -> Iterator[bytes]:
    """As a victim would take them, up to where it hangs up."""
    position = 0
    while len(data) - position >= HEAD.size:
        size = LENGTH_BYTES + int.from_bytes(data[position : position + LENGTH_BYTES], "big")
        if not HEAD.size <= size <= FRAME_BYTES_MAX:
            return
        yield data[position : position + size]
        position += size


def _is_harm(frame: bytes, honest: set[int], knows: Knows) -> bool:
    try:
        if number_of(frame) == BROADCAST:
            return not knows.signed and name_of(frame)[0] in honest
        return _tells(decode(frame), honest, knows)
    except WireError:
        return False


def _tells(message: Message, honest: set[int], knows: Knows) -> bool:
    if isinstance(message, Hello):
        return not knows.signed and message.peer in honest
    if isinstance(message, Greeting | Known):
        return not knows.hearsay and any(have.author in honest for have in message.have)
    if isinstance(message, Announce):
        return not knows.hearsay and any(standing.author in honest for standing in message.standings)
    return False
