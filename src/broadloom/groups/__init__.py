"""Groups over a channel (after the M2MC thesis): membership, causal order and history, without a server.

The core (participant.py and its parts) is sans-IO. It runs over a real channel (channel_runtime.py) or a simulated peer
(tests/groups/sim_runtime.py).
"""

from broadloom.errors import AmbiguousGroupError, GroupNotFoundError
from broadloom.groups.codec import LAYER
from broadloom.groups.group import Group, GroupPublisher, ThreadEntry
from broadloom.groups.groups import Groups, group_id_from_name, resolve_group
from broadloom.groups.messages import PayloadIds, payload_ids
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
from broadloom.groups.settings import GroupSettings, RetentionPolicy
from broadloom.groups.sqlite_store import SqliteStore
from broadloom.groups.store import MemoryStore, Store

__all__ = [
    "LAYER",
    "AmbiguousGroupError",
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
    "PayloadIds",
    "RetentionPolicy",
    "SqliteStore",
    "Store",
    "ThreadEntry",
    "group_id_from_name",
    "payload_ids",
    "resolve_group",
]
