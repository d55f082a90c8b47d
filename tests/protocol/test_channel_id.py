"""Channel names: what is one, and the id that all machines derive from it alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broadloom.protocol import ChannelName
from broadloom.wire.fields import CHANNEL_ID_BYTES

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
kinds = texts.filter(lambda text: "/" not in text)


def test_a_name_is_type_and_instance() -> None:
    assert ChannelName.parse("chess/club-42") == ("chess", "club-42")


def test_only_the_first_slash_divides() -> None:
    assert ChannelName.parse("chess/club/42") == ("chess", "club/42")


@pytest.mark.parametrize("text", ["", "chess", "/", "chess/", "/club-42"])
def test_what_is_no_name_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="TYPE/INSTANCE, as in chess/club-42") as caught:
        ChannelName.parse(text)
    assert repr(text) in str(caught.value)


@given(kinds, texts)
def test_a_name_can_be_written_and_read_again(kind: str, instance: str) -> None:
    name = ChannelName(kind, instance)
    assert ChannelName.parse(str(name)) == name


@given(kinds, texts)
def test_the_id_is_always_the_same_and_of_one_size(kind: str, instance: str) -> None:
    made = ChannelName(kind, instance).id
    assert made == ChannelName(kind, instance).id
    assert len(made) == CHANNEL_ID_BYTES


@given(st.tuples(texts, texts), st.tuples(texts, texts))
def test_different_names_have_different_ids(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (ChannelName(*one).id == ChannelName(*other).id) == (one == other)


def test_where_the_type_ends_makes_a_difference() -> None:
    assert ChannelName("ab", "c").id != ChannelName("a", "bc").id


def test_the_id_of_a_name_never_changes() -> None:
    # Peers of different versions must find each other: another derivation is another protocol.
    assert ChannelName.parse("chess/club-42").id.hex() == "c4f3ab7be689df4f793ae2705201511a"
