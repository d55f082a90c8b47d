"""Groups over a channel: who is in it, in what order, what was missed.

The core (`participant.py` and what it is made of) has no sockets, clock or randomness of its own: it meets the world
through one small interface (`medium.py`), over a real channel (`over_channel.py`) or a simulated peer (`over_sim.py`).
"""

from weft.groups.errors import NoSuchGroup
from weft.groups.events import (
    CatchingUp,
    CaughtUp,
    Greeted,
    GroupEvent,
    GroupInfo,
    GroupOffered,
    Here,
    MemberBack,
    MemberGone,
    MemberJoined,
    MemberLeft,
    Refused,
)
from weft.groups.group import Group, Line
from weft.groups.guest import Guest
from weft.groups.history import MemoryStore, Store
from weft.groups.identities import Identities, identities
from weft.groups.meant import group_id, meant
from weft.groups.names import GroupId, Member, MemberId, Message, MessageId
from weft.groups.participant import Participant
from weft.groups.settings import Keep, Settings
from weft.groups.sqlite_store import SqliteStore, StoreUnusable
from weft.groups.taking_part import Groups, groups

__all__ = [
    "CatchingUp",
    "CaughtUp",
    "Greeted",
    "Group",
    "GroupEvent",
    "GroupId",
    "GroupInfo",
    "GroupOffered",
    "Groups",
    "Guest",
    "Here",
    "Identities",
    "Keep",
    "Line",
    "Member",
    "MemberBack",
    "MemberGone",
    "MemberId",
    "MemberJoined",
    "MemberLeft",
    "MemoryStore",
    "Message",
    "MessageId",
    "NoSuchGroup",
    "Participant",
    "Refused",
    "Settings",
    "SqliteStore",
    "Store",
    "StoreUnusable",
    "group_id",
    "groups",
    "identities",
    "meant",
]
