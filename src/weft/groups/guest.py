"""Speaking in a group without being in it: for programs that put messages there and go, such as a feed.

A guest stands in no list, hears nothing and fetches no history; what it says is a message like any other, kept and
passed on by the members. It needs no more than the channel.
"""

import secrets
import time

from weft.groups.codec import encode
from weft.groups.limits import DATA_BYTES_MAX, NAME_BYTES_MAX
from weft.groups.messages import Said
from weft.groups.names import GroupId, MessageId, Post


class Guest:
    """One author of one group, from its first word to its last: its numbers begin at 1 and must not be used again, so
    it has an id of its own each time."""

    def __init__(self, group: GroupId, name: str) -> None:
        if len(name.encode()) > NAME_BYTES_MAX or "\0" in name:
            raise ValueError(f"a name has at most {NAME_BYTES_MAX} bytes, and no NUL in it")
        self.group = group
        self.name = name
        self.id = secrets.randbits(64) or 1
        self._said = 0

    def says(self, data: bytes, reply_to: MessageId | None = None) -> bytes:
        """The payload to broadcast on the channel, all of them in their order."""
        if len(data) > DATA_BYTES_MAX:
            raise ValueError(f"a message of {len(data):,} bytes, at most {DATA_BYTES_MAX:,} are possible in a group")
        self._said += 1
        return encode(Said(self.group, self.name, Post(self.id, self._said, reply_to, int(1000 * time.time()), data)))
