"""Groups over a channel: who is in it, in what order, what was missed.

The core (`participant.py` and what it is made of) has no sockets, clock or randomness of its own: it meets the world
through one small interface (`medium.py`), over a real channel (`over_channel.py`) or a simulated peer (`over_sim.py`).
"""

from broadloom.errors import GroupNotFoundError
from broadloom.groups.group import Group, GroupPublisher, ThreadEntry
from broadloom.groups.groups import Groups, group_id_from_name, groups, resolve_group
from broadloom.groups.model import (
    CatchingUp,
    CaughtUp,
    DirectorySynced,
    GroupDiscovered,
    GroupEvent,
    GroupId,
    GroupInfo,
    GroupMessage,
    LimitReached,
    Member,
    MemberId,
    MemberJoined,
    MemberLeft,
    MemberOffline,
    MemberOnline,
    MemberStatus,
    MessageId,
)
from broadloom.groups.participant import Participant
from broadloom.groups.payload_ids import PayloadIds, payload_ids
from broadloom.groups.settings import GroupSettings, RetentionPolicy
from broadloom.groups.sqlite_store import SqliteStore, StoreError
from broadloom.groups.store import MemoryStore, Store

__all__ = [
    "CatchingUp",
    "CaughtUp",
    "DirectorySynced",
    "Group",
    "GroupDiscovered",
    "GroupEvent",
    "GroupId",
    "GroupInfo",
    "GroupMessage",
    "GroupNotFoundError",
    "GroupPublisher",
    "GroupSettings",
    "Groups",
    "LimitReached",
    "Member",
    "MemberId",
    "MemberJoined",
    "MemberLeft",
    "MemberOffline",
    "MemberOnline",
    "MemberStatus",
    "MemoryStore",
    "MessageId",
    "Participant",
    "PayloadIds",
    "RetentionPolicy",
    "SqliteStore",
    "Store",
    "StoreError",
    "ThreadEntry",
    "group_id_from_name",
    "groups",
    "payload_ids",
    "resolve_group",
]
