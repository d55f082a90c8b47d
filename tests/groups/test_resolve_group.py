"""Resolving a group by title, description or id prefix."""

import pytest

from broadloom.errors import AmbiguousGroupError, GroupNotFoundError
from broadloom.groups.groups import resolve_group
from broadloom.groups.model import GroupInfo
from broadloom.groups.settings import RetentionPolicy


def group(number: int, description: str) -> GroupInfo:
    return GroupInfo(
        number, description, RetentionPolicy(), is_joined=False, is_declined=False, online_count=1, member_count=1
    )


CHESS, GARDEN = group(0xABCD << 48, "Chess club\nWednesdays at eight"), group(2, "Garden")


@pytest.mark.parametrize("text", ["Chess club", "chess CLUB", CHESS.description, "abcd"])
def test_group_is_resolved_by_title_description_or_id_prefix(text: str) -> None:
    assert resolve_group(text, [CHESS, GARDEN]) is CHESS


def test_unresolved_group_error_lists_candidates() -> None:
    with pytest.raises(GroupNotFoundError, match="Garden"):
        resolve_group("Chess", [GARDEN])
    with pytest.raises(AmbiguousGroupError, match="use the id"):
        resolve_group("Garden", [GARDEN, group(3, "Garden\nof roses")])
