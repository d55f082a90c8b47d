"""The worked example 6.1.3 of the M2MC thesis: which member serves history and which stay silent, step by step."""

from random import Random

from broadloom.groups.codec import decode
from broadloom.groups.message_fields import unpack_posts
from broadloom.groups.messages import HistoryPage
from broadloom.groups.model import GroupMessage
from broadloom.groups.store import MemoryStore
from tests.groups.group_bus import BusMember, GroupBus

SETTLE_S = 20.0


class FixedRandom(Random):
    """The member with the smaller number replies first."""

    def __init__(self, value: float) -> None:
        super().__init__(int(value * 1000))
        self._value = value

    def random(self) -> float:
        return self._value


def texts(message: list[GroupMessage]) -> list[str]:
    return [each.text for each in message]


def test_protocol_illustration_thesis_6_1_3() -> None:
    bus = GroupBus(delay=lambda random: 0.05)
    pages: list[tuple[str, HistoryPage]] = []
    transmit = bus.transmit

    def recording(sender: BusMember, data: bytes) -> None:
        message = decode(data)
        if isinstance(message, HistoryPage):
            pages.append((sender.participant.me.name, message))
        transmit(sender, data)

    bus.transmit = recording  # type: ignore[method-assign]

    # A, B and C are members; M1 is sent. C disconnects; M2 is sent.
    store_c = MemoryStore()
    a = bus.add("A", random=FixedRandom(0.6))
    b = bus.add("B", random=FixedRandom(0.9))
    c = bus.add("C", store_c)
    group = a.participant.create("a group", group=7)
    bus.run(SETTLE_S)
    for member in (b, c):
        member.participant.join(group)
    bus.run(SETTLE_S)
    a.send_text(group, "M1")
    bus.run(1.0)
    bus.go_offline(c)
    b.send_text(group, "M2")
    bus.run(SETTLE_S)
    assert a.texts() == b.texts() == ["M1", "M2"]
    assert c.texts() == ["M1"]

    # C reconnects and has made no request yet; the new member D makes one first.
    c = bus.add("C", store_c, random=FixedRandom(0.001), announces=False)
    c.participant._is_open = True  # it receives messages, and has not announced itself
    d = bus.add("D")
    bus.run(4.0)
    pages.clear()
    d.participant.join(group)
    # The back-off of C ends first: it sends M1, which is all it has.
    bus.run(0.3)
    assert [(name, [post.data for post in unpack_posts(page.body)]) for name, page in pages] == [("C", [b"M1"])]
    assert d.texts() == ["M1"]
    # A and B remove M1 from their replies. A is next and sends M2; B would send the same and stays silent.
    bus.run(SETTLE_S)
    assert [(name, [post.data for post in unpack_posts(page.body)]) for name, page in pages] == [
        ("C", [b"M1"]),
        ("A", [b"M2"]),
    ]
    assert d.texts() == ["M1", "M2"]
    # C receives the page for D too, and need not request M2.
    assert texts(c.delivered) == ["M2"]
    assert all(page.requester == d.peer_id for _, page in pages)
