"""The ten group messages. Each is broadcast: every peer of the channel receives it.

Directory: `DirectoryRequest`, `DirectoryPage`, `MembershipChange`. Presence: `PresenceHeartbeat`, `GoingOffline`,
`Suspect`. Conversation: `PostMessage`. History: `HistoryRequest`, `PostRequest`, `HistoryPage`.
"""

import struct
from typing import NamedTuple

from broadloom.groups.codec import HEADER_BYTES, VERSION, GroupWireMessage, decode, is_group_message
from broadloom.groups.message_fields import (
    Body,
    Buckets,
    GroupIdField,
    HeldIntervals,
    HistoryDigests,
    MemberIdField,
    MemberIds,
    MessageIds,
    Name,
    Names,
    PostField,
    unpack_post_message_head,
)
from broadloom.groups.model import GroupId, MessageId
from broadloom.wire.fields import Bool, Hyper, UInt
from broadloom.wire.layer_codec import layer_message
from broadloom.wire.xdr import WireError


@layer_message(1)
class DirectoryRequest(GroupWireMessage):
    """The sender is online and knows these groups. Causes: members that know more reply with a `DirectoryPage` after a
    randomized back-off."""

    member: MemberIdField
    name: Name
    is_initial: Bool
    """The sender just connected. Otherwise it noticed that its directory differs from another member's."""
    buckets: Buckets
    """A hash for each bucket of the sender's directory. Their number is a power of two."""


@layer_message(2)
class DirectoryPage(GroupWireMessage):
    """Groups known to the sender. Causes: receivers merge them and report new groups; members about to send the same
    stay silent. After the last page of a reply, the requester sends what only it knows."""

    requester: Hyper
    """The peer whose `DirectoryRequest` this answers; 0 if it is not a reply."""
    directory_hash: Hyper
    """Hash of the sender's whole directory. A receiver with the same hash need not decode the body."""
    is_complete: Bool
    """The pages of this reply contain the sender's whole directory."""
    is_last: Bool
    peer_count: UInt
    """The sender's estimate of the number of peers, for a requester that has not heard any yet."""
    buckets: Buckets
    """In the last page of a reply: the sender's bucket hashes, as many as in the request."""
    offline: MemberIds
    """Members that the sender considers offline: a hint for the requester."""
    body: Body
    """A list of `GroupRecord`, compressed with zlib."""


@layer_message(3)
class MembershipChange(GroupWireMessage):
    """The sender joins or leaves a group. Causes: receivers update the group's member list."""

    group: GroupIdField
    member: MemberIdField
    name: Name
    version: Hyper
    """Odd: joins. Even: leaves."""


@layer_message(4)
class PresenceHeartbeat(GroupWireMessage):
    """The sender is still online. Causes: it is shown as online; a receiver whose directory or history keeps differing
    from the sender's requests the difference."""

    member: MemberIdField
    name: Name
    interval_ms: UInt
    """Approximate time until the next heartbeat."""
    directory_hash: Hyper
    history_digests: HistoryDigests
    """For some of the sender's groups, in rotation."""


@layer_message(5)
class GoingOffline(GroupWireMessage):
    """The sender disconnects and stays a member of its groups. Causes: it is shown as offline at once."""

    member: MemberIdField


@layer_message(6)
class Suspect(GroupWireMessage):
    """The sender lost its link to a neighbor, which may have failed. Causes: that peer sends a heartbeat; if it does
    not, its member is shown as offline."""

    peer: Hyper
    member: MemberIdField
    """0 if unknown to the sender."""


@layer_message(7)
class PostMessage(GroupWireMessage):
    """A message posted to a group. Causes: members store it and deliver it after its parent."""

    group: GroupIdField
    name: Name
    post: PostField


@layer_message(8)
class HistoryRequest(GroupWireMessage):
    """The messages of a group that the sender has. Causes: a member that has more sends pages, after a randomized
    back-off or at once if it is the named responder; a member that misses some of them makes its own request later."""

    group: GroupIdField
    request_id: UInt
    """Counts the sender's requests. A later request replaces an earlier one."""
    responder: Hyper
    """The peer that should continue; 0 for any."""
    held: HeldIntervals


@layer_message(9)
class PostRequest(GroupWireMessage):
    """Missing parents of messages that the sender has. Causes: a member that has them sends a page."""

    group: GroupIdField
    message_ids: MessageIds


@layer_message(10)
class HistoryPage(GroupWireMessage):
    """Part of a group's history, parents first. Causes: members that miss any of it take it; members about to send the
    same stay silent; after the last page of a turn the requester asks the sender for more, if some remain."""

    group: GroupIdField
    requester: Hyper
    """The peer that is served; 0 for a reply to a `PostRequest`."""
    request_id: UInt
    remaining: UInt
    """Messages still to come after this page, as far as the sender knows."""
    is_last: Bool
    """The sender now waits for another request."""
    contents: HeldIntervals
    """The messages in this page. A receiver that has them all need not decode the body."""
    unavailable: HeldIntervals
    """In the very last page: messages that the sender once had and no longer holds."""
    names: Names
    """Display names of the authors."""
    body: Body
    """A list of `Post`, compressed with zlib."""


class PayloadIds(NamedTuple):
    """What a recorder, which is not a member, can tell about a channel payload."""

    group_id: GroupId
    message_id: MessageId
    parent_id: MessageId | None


_POST_MESSAGE_HEADER = bytes((VERSION, PostMessage.number))


def payload_ids(data: bytes, *, is_partial: bool = False) -> PayloadIds | None:
    """Group, message and parent of a channel payload; None if it is not a valid `PostMessage`.

    With `is_partial`, `data` may be the beginning of a larger payload: the ids come first.
    """
    if not is_group_message(data) or data[2:HEADER_BYTES] != _POST_MESSAGE_HEADER:
        return None
    try:
        if is_partial:
            return PayloadIds(*unpack_post_message_head(data, HEADER_BYTES))
        message = decode(data)
    except (WireError, struct.error):
        return None
    assert isinstance(message, PostMessage)
    return PayloadIds(message.group, message.post.id, message.post.parent_id)
