"""Which group somebody means."""

import pytest

from weft.groups.errors import NoSuchGroup
from weft.groups.events import GroupInfo
from weft.groups.meant import Ambiguous, meant
from weft.groups.settings import Keep


def group(number: int, description: str) -> GroupInfo:
    return GroupInfo(number, description, Keep(), joined=False, rejected=False, present=1, members=1)


CHESS, GARDEN = group(0xABCD << 48, "Chess club\nWednesdays at eight"), group(2, "Garden")


@pytest.mark.parametrize("text", ["Chess club", "chess CLUB", CHESS.description, "abcd"])
def test_by_title_description_or_digits(text: str) -> None:
    assert meant(text, [CHESS, GARDEN]) is CHESS


def test_none_and_several_are_errors_that_name_what_there_is() -> None:
    with pytest.raises(NoSuchGroup, match="Garden"):
        meant("Chess", [GARDEN])
    with pytest.raises(Ambiguous, match="give the id"):
        meant("Garden", [GARDEN, group(3, "Garden\nof roses")])
