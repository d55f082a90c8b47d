"""The port order: every user port once, alike on every machine, and the order in which a seeker tries it."""

from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broadloom.protocol import ChannelName
from broadloom.protocol.channel_name import FIRST_PORT, LAST_PORT, SHUFFLED_PORTS, PortOrder, search_order

CHANNELS = [ChannelName.parse(text).id for text in ("chess/club-42", "chess/club-43", "news/all")]
DRAWS = 20_000


@pytest.mark.parametrize("channel_id", CHANNELS, ids=["chess 42", "chess 43", "news"])
def test_every_user_port_comes_exactly_once(channel_id: bytes) -> None:
    assert sorted(PortOrder(channel_id)) == list(range(FIRST_PORT, LAST_PORT + 1))


def test_the_length_and_both_ends_agree() -> None:
    order = PortOrder(CHANNELS[0])
    assert len(order) == LAST_PORT - FIRST_PORT + 1
    assert len({order[0], order[len(order) - 1]}) == 2
    for outside in (-1, len(order)):
        with pytest.raises(IndexError):
            order[outside]


def test_a_channel_always_has_the_same_order() -> None:
    assert list(islice(PortOrder(CHANNELS[0]), 1000)) == list(islice(PortOrder(CHANNELS[0]), 1000))


def test_channels_differ() -> None:
    # Two random orders have about one port in the same place; more than a few would be a pattern.
    one, other, third = (list(PortOrder(channel_id)) for channel_id in CHANNELS)
    for left, right in ((one, other), (one, third), (other, third)):
        assert sum(a == b for a, b in zip(left, right, strict=True)) < 10


def test_the_order_of_a_channel_never_changes() -> None:
    # Peers of different versions must find each other: another order is another protocol.
    order = PortOrder(ChannelName.parse("chess/club-42").id)
    assert [order[index] for index in range(12)] == [
        35615, 3569, 46477, 4736, 20390, 45229, 36199, 9557, 56197, 26752, 47052, 43583,
    ]  # fmt: skip
    assert order[len(order) - 1] == 48664


# The order in which one seeker tries the first ports.


@given(st.integers(0, 64), st.integers())
def test_every_depth_is_tried_once_and_only_the_first_eight_are_reordered(depth: int, seed: int) -> None:
    order = search_order(depth, Random(seed))
    assert sorted(order[:SHUFFLED_PORTS]) == list(range(min(SHUFFLED_PORTS, depth)))
    assert order[SHUFFLED_PORTS:] == list(range(SHUFFLED_PORTS, depth))


def test_the_first_try_is_weighted_to_the_front() -> None:
    # One half, one quarter, and so on; the last two share what is left. Bounds of six standard deviations.
    random = Random(1)
    firsts = [search_order(16, random)[0] for _ in range(DRAWS)]
    for index in range(SHUFFLED_PORTS):
        chance = 2.0 ** -min(index + 1, SHUFFLED_PORTS - 1)
        deviation = (DRAWS * chance * (1 - chance)) ** 0.5
        assert abs(firsts.count(index) - DRAWS * chance) < 6 * deviation, index


def test_the_second_try_is_weighted_to_the_front_of_what_is_left() -> None:
    random = Random(1)
    seconds = [order[1] for order in (search_order(16, random) for _ in range(DRAWS)) if order[0] == 0]
    assert abs(seconds.count(1) / len(seconds) - 1 / 2) < 0.03
    assert abs(seconds.count(2) / len(seconds) - 1 / 4) < 0.03
