"""A hostile member of the groups on a simulated channel with tickets: nothing is lost among the honest, and nobody
speaks in another's name."""

from random import Random

import pytest

from broadloom.groups import proofs
from broadloom.groups.codec import GroupWireMessage, decode, is_group_message
from broadloom.groups.message_fields import (
    AuthorIntervals,
    GroupDescriptor,
    GroupRecord,
    MembershipRecord,
    pack_group_records,
    pack_posts,
)
from broadloom.groups.messages import (
    DirectoryPage,
    GoingOffline,
    HistoryPage,
    HistoryRequest,
    MembershipChange,
    PostMessage,
    Suspect,
)
from broadloom.groups.model import GroupId, MemberId, Post
from broadloom.groups.settings import INTERVALS_MAX, RetentionPolicy
from broadloom.groups.store import MemoryStore
from broadloom.protocol.events import Message
from tests.groups.churn import ChurnMember, ChurnRun
from tests.groups.sim_post_signer import SimPostSigner

LIE_INTERVAL_S = 0.5
HOSTILE_NAME = "mallory"


class HostileMember(ChurnMember):
    """Follows the protocol, so that others listen to it, and lies about the posts of all others."""

    def begin(self) -> None:
        self.node.on_message = self._answer
        self.lie()

    def _answer(self, message: Message) -> None:
        """Tell a member that asks for history that it was sent, and that nobody has it any more."""
        self.participant.on_message(message.author, message.data)
        request = decode(message.data) if is_group_message(message.data) else None
        if isinstance(request, HistoryRequest) and request.group in self.participant.conversations:
            held = self.participant.conversations[request.group].order.received.encode(INTERVALS_MAX)
            self.participant.send(
                HistoryPage(request.group, message.author, request.request_id, 0, True, held, held, (), pack_posts([]))
            )

    def lie(self) -> None:
        self.call_later(LIE_INTERVAL_S, self.lie)
        random = self.random
        for group, conversation in self.participant.conversations.items():
            received = conversation.order.received
            for author, intervals in list(received.items()):
                if author != self.participant.me.id:
                    self.participant.send(random.choice(self._lies(group, author, intervals.last, random)))

    def _lies(self, group: GroupId, author: MemberId, last: int, random: Random) -> list[GroupWireMessage]:
        assert self.post_signer is not None
        now_ms = int(1000 * self.wall_time_s())
        forged = Post(author, last + random.choice((0, 1, 2)), None, now_ms, b"I resign")
        forged = proofs.signed(self.post_signer, group, self.participant.nonce, forged)
        ahead = (AuthorIntervals(author, ((1, last + random.choice((1, 3, 1000))),)),)
        requester = random.choice([peer for peer in self.names if peer != self.peer_id])
        body = pack_posts([forged])
        smaller = GroupDescriptor(MemberId(1), "a", RetentionPolicy(messages_max=1))
        record = GroupRecord(group, smaller, (MembershipRecord(MemberId(2), "dummy", random.randint(1, 1000)),))
        return [
            DirectoryPage(0, 0, False, True, 0, (), (), pack_group_records([record])),
            PostMessage(group, "victim", forged),
            HistoryPage(group, 0, 0, 0, True, ahead, (), (), body),
            HistoryPage(group, requester, random.randint(1, 4), 0, True, ahead, ahead, (), pack_posts([])),
            HistoryRequest(group, random.randint(1, 1000), 0, ahead),
            MembershipChange(group, author, "victim", 2 * random.randint(1, 3)),
            GoingOffline(author),
            Suspect(requester, author),
        ]

    @property
    def names(self) -> dict[int, str]:
        assert isinstance(self.post_signer, SimPostSigner)
        return self.post_signer._names


class HostileChurnRun(ChurnRun):
    """The second member is hostile from the beginning to the end."""

    def __init__(self, seed: int, peers: int, groups: int) -> None:
        self.names: dict[int, str] = {}
        super().__init__(seed, peers, groups)

    def add(self, name: str, wanted_groups: list[GroupId], store: MemoryStore) -> None:
        is_hostile = name == "m1"
        ticket_name = HOSTILE_NAME if is_hostile else name
        kind = HostileMember if is_hostile else ChurnMember
        member = kind(
            self.sim, name, self.groups if is_hostile else wanted_groups, store, SimPostSigner(ticket_name, self.names)
        )
        self.names[member.peer_id] = ticket_name
        if isinstance(member, HostileMember):
            member.call_later(20.0, member.begin)
        else:
            self.members.append(member)


def run_with_hostile_member(seed: int, peers: int = 10) -> None:
    run = HostileChurnRun(seed, peers, 2)
    run.run()
    assert run.check() > 100
    for member in run.members:
        descriptors = [member.participant.directory.entries[group].descriptor for group in run.groups]
        assert [each.description for each in descriptors if each is not None] == [
            f"group {each}" for each in run.groups
        ]
        assert not any(each.retention.is_limited for each in descriptors if each is not None)
        for message in member.delivered:
            assert message.verified_name != HOSTILE_NAME
            assert message.data == b"words of %s" % message.verified_name.encode()


@pytest.mark.parametrize(("seed", "peers"), [(1, 6), pytest.param(2, 10, marks=pytest.mark.long)])
def test_honest_members_converge_to_the_posts_of_their_authors(seed: int, peers: int) -> None:
    run_with_hostile_member(seed, peers)


@pytest.mark.long
def test_hostile_member_does_harm_where_signatures_are_not_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the test above would show nothing."""
    monkeypatch.setattr(proofs, "verified", lambda _signer, _group, post: post)
    with pytest.raises(AssertionError):
        run_with_hostile_member(1)
