"""The worked example 6.1.3 of the M2MC thesis: who answers, who keeps quiet, and what is sent, step by step."""

from random import Random

from broadloom.groups.codec import decode
from broadloom.groups.message_fields import unpack_posts
from broadloom.groups.messages import HistoryPage
from broadloom.groups.model import GroupMessage
from broadloom.groups.store import MemoryStore
from tests.groups.group_bus import BusMember, GroupBus

SETTLE_S = 20.0


class FixedRandom(Random):
    """Whoever draws the smaller number answers first."""

    def __init__(self, value: float) -> None:
        super().__init__(int(value * 1000))
        self._value = value

    def random(self) -> float:
        return self._value


def texts(message: list[GroupMessage]) -> list[str]:
    return [each.text for each in message]


def test_6_1_3_protocol_illustration() -> None:
    ether = GroupBus(delay=lambda random: 0.05)
    pages: list[tuple[str, HistoryPage]] = []
    carry = ether.transmit

    def noting(sender: BusMember, data: bytes) -> None:
        note = decode(data)
        if isinstance(note, HistoryPage):
            pages.append((sender.participant.me.name, note))
        carry(sender, data)

    ether.transmit = noting  # type: ignore[method-assign]

    # A, B and C are members; M1 is said. C disconnects; M2 is said.
    store_c = MemoryStore()
    a = ether.add("A", random=FixedRandom(0.6))
    b = ether.add("B", random=FixedRandom(0.9))
    c = ether.add("C", store_c)
    group = a.participant.create("a group", group=7)
    ether.run(SETTLE_S)
    for member in (b, c):
        member.participant.join(group)
    ether.run(SETTLE_S)
    a.send_text(group, "M1")
    ether.run(1.0)
    ether.go_offline(c)
    b.send_text(group, "M2")
    ether.run(SETTLE_S)
    assert a.texts() == b.texts() == ["M1", "M2"]
    assert c.texts() == ["M1"]

    # C reconnects and has not asked yet; D, who is new, asks before it.
    c = ether.add("C", store_c, random=FixedRandom(0.001), announces=False)
    c.participant._is_open = True  # it hears the others, and has not said that it is here
    d = ether.add("D")
    ether.run(4.0)
    pages.clear()
    d.participant.join(group)
    # The back-off of C is over first: it sends M1, which is all it has.
    ether.run(0.3)
    assert [(name, [post.data for post in unpack_posts(page.body)]) for name, page in pages] == [("C", [b"M1"])]
    assert d.texts() == ["M1"]
    # A and B take M1 off their lists. A is next, and sends M2; B, who would have sent the same, keeps quiet.
    ether.run(SETTLE_S)
    assert [(name, [post.data for post in unpack_posts(page.body)]) for name, page in pages] == [
        ("C", [b"M1"]),
        ("A", [b"M2"]),
    ]
    assert d.texts() == ["M1", "M2"]
    # C hears the page that was meant for D, and need not ask for M2 any more.
    assert texts(c.delivered) == ["M2"]
    assert all(page.requester == d.peer_id for _, page in pages)
