"""Channel names, the channel id, and the port order derived from it."""

from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broadloom.protocol import ChannelName
from broadloom.protocol.channel_name import FIRST_PORT, LAST_PORT, SHUFFLED_PORTS, PortOrder, search_order
from broadloom.wire.fields import CHANNEL_ID_BYTES

CHANNELS = [ChannelName.parse(text).id for text in ("chess/club-42", "chess/club-43", "news/all")]
DRAWS = 20_000

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda text: text == text.strip())
kinds = texts.filter(lambda text: "/" not in text)


def test_channel_name_parses_type_and_instance() -> None:
    assert ChannelName.parse("chess/club-42") == ("chess", "club-42")


def test_channel_name_splits_at_first_slash_only() -> None:
    assert ChannelName.parse("chess/club/42") == ("chess", "club/42")


@pytest.mark.parametrize("text", ["", "chess", "/", "chess/", "/club-42", "chess/club-42\n", " chess/club-42"])
def test_invalid_channel_name_raises_value_error_with_example(text: str) -> None:
    with pytest.raises(ValueError, match="TYPE/INSTANCE, as in chess/club-42") as caught:
        ChannelName.parse(text)
    assert repr(text) in str(caught.value)


@given(kinds, texts)
def test_channel_name_round_trips_through_text(kind: str, instance: str) -> None:
    name = ChannelName(kind, instance)
    assert ChannelName.parse(str(name)) == name


@given(kinds, texts)
def test_channel_id_is_deterministic_and_of_fixed_size(kind: str, instance: str) -> None:
    made = ChannelName(kind, instance).id
    assert made == ChannelName(kind, instance).id
    assert len(made) == CHANNEL_ID_BYTES


@given(st.tuples(texts, texts), st.tuples(texts, texts))
def test_different_names_have_different_ids(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (ChannelName(*one).id == ChannelName(*other).id) == (one == other)


def test_channel_id_depends_on_where_the_type_ends() -> None:
    assert ChannelName("ab", "c").id != ChannelName("a", "bc").id


def test_channel_id_never_changes_between_versions() -> None:
    # Peers of different versions must find each other: another derivation is another protocol.
    assert ChannelName.parse("chess/club-42").id.hex() == "c4f3ab7be689df4f793ae2705201511a"


# Port order.


@pytest.mark.parametrize("channel_id", CHANNELS, ids=["chess 42", "chess 43", "news"])
def test_port_order_contains_every_user_port_once(channel_id: bytes) -> None:
    assert sorted(PortOrder(channel_id)) == list(range(FIRST_PORT, LAST_PORT + 1))


def test_port_order_raises_index_error_beyond_its_length() -> None:
    order = PortOrder(CHANNELS[0])
    assert len(order) == LAST_PORT - FIRST_PORT + 1
    assert len({order[0], order[len(order) - 1]}) == 2
    for outside in (-1, len(order)):
        with pytest.raises(IndexError):
            order[outside]


def test_port_order_is_deterministic() -> None:
    assert list(islice(PortOrder(CHANNELS[0]), 1000)) == list(islice(PortOrder(CHANNELS[0]), 1000))


def test_port_order_differs_between_channels() -> None:
    # Two random orders have about one port in the same place; more than a few would be a pattern.
    one, other, third = (list(PortOrder(channel_id)) for channel_id in CHANNELS)
    for left, right in ((one, other), (one, third), (other, third)):
        assert sum(a == b for a, b in zip(left, right, strict=True)) < 10


def test_port_order_never_changes_between_versions() -> None:
    # Peers of different versions must find each other: another order is another protocol.
    order = PortOrder(ChannelName.parse("chess/club-42").id)
    assert [order[index] for index in range(12)] == [
        35615, 3569, 46477, 4736, 20390, 45229, 36199, 9557, 56197, 26752, 47052, 43583,
    ]  # fmt: skip
    assert order[len(order) - 1] == 48664


# The order in which one seeker tries the first ports.


@given(st.integers(0, 64), st.integers())
def test_search_order_shuffles_only_the_first_eight_ports(depth: int, seed: int) -> None:
    order = search_order(depth, Random(seed))
    assert sorted(order[:SHUFFLED_PORTS]) == list(range(min(SHUFFLED_PORTS, depth)))
    assert order[SHUFFLED_PORTS:] == list(range(SHUFFLED_PORTS, depth))


def test_search_order_weights_first_try_to_the_front() -> None:
    # One half, one quarter, and so on; the last two share what is left. Bounds of six standard deviations.
    random = Random(1)
    firsts = [search_order(16, random)[0] for _ in range(DRAWS)]
    for index in range(SHUFFLED_PORTS):
        chance = 2.0 ** -min(index + 1, SHUFFLED_PORTS - 1)
        deviation = (DRAWS * chance * (1 - chance)) ** 0.5
        assert abs(firsts.count(index) - DRAWS * chance) < 6 * deviation, index


def test_search_order_weights_second_try_to_the_front() -> None:
    random = Random(1)
    seconds = [order[1] for order in (search_order(16, random) for _ in range(DRAWS)) if order[0] == 0]
    assert abs(seconds.count(1) / len(seconds) - 1 / 2) < 0.03
    assert abs(seconds.count(2) / len(seconds) - 1 / 4) < 0.03
