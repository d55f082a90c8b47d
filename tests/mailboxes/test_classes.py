"""The 13 classes and what they allow, against tables written down a second time: FIG. 8 of the patent, and ours."""

import pytest

from broadloom.mailboxes import CLASSES, Operation, Receive, WrongClassError, class_of
from broadloom.mailboxes.classes import class_number

FIG_8 = """
class persistent receive send fetchable held
1     no         delayed -    -         -
2     no         delayed yes  -         -
3     no         through -    -         -
4     no         through yes  -         -
5     no         polled  -    -         -
6     no         polled  yes  -         -
7     no         -       yes  -         -
8     yes        -       yes  yes       -
9     yes        -       yes  -         yes
10    yes        -       yes  yes       yes
11    yes        delayed -    -         -
12    yes        through -    -         -
13    yes        polled  -    -         -
"""

ALLOWED = """
class post poll wait send put get fetch keep
1     x    x    x    -    -   -   -     -
2     x    x    x    x    -   -   -     -
3     x    x    x    -    -   -   -     -
4     x    x    x    x    -   -   -     -
5     x    x    -    -    -   -   -     -
6     x    x    -    x    -   -   -     -
7     -    -    -    x    -   -   -     -
8     -    -    -    -    x   x   x     -
9     -    -    -    -    x   x   -     x
10    -    -    -    -    x   x   x     x
11    x    x    x    -    -   x   -     -
12    x    x    x    -    -   x   -     -
13    x    x    -    -    -   x   -     -
"""


def rows(text: str) -> list[dict[str, str]]:
    heading, *lines = text.strip().splitlines()
    return [dict(zip(heading.split(), line.split(), strict=True)) for line in lines]


def test_mb_4_the_classes_are_those_of_fig_8() -> None:
    found = [
        {
            "class": str(number),
            "persistent": "yes" if each.persistent else "no",
            "receive": each.receive or "-",
            **{name: "yes" if getattr(each, name) else "-" for name in ("send", "fetchable", "held")},
        }
        for number, each in CLASSES.items()
    ]
    assert found == rows(FIG_8)


@pytest.mark.parametrize("row", rows(ALLOWED), ids=lambda row: f"class {row['class']}")
@pytest.mark.parametrize("operation", list(Operation))
def test_mb_4_every_operation_on_every_class_is_allowed_or_raises(row: dict[str, str], operation: Operation) -> None:
    found = CLASSES[int(row["class"])]
    if row[operation] == "x":
        found.check(operation, "jobs")
    else:
        with pytest.raises(WrongClassError, match=f"is of class {found.number}, .* but not {operation}"):
            found.check(operation, "jobs")


def test_mb_3_classes_are_predefined_and_finite() -> None:
    for number in (0, 14, -1):
        with pytest.raises(WrongClassError, match="classes 1 to 13"):
            class_number(number)
    found = 0
    for persistent in (False, True):
        for receive in (None, *Receive):
            for bits in range(8):
                send, fetchable, held = (bool(bits & 1 << bit) for bit in range(3))
                try:
                    each = class_of(persistent=persistent, receive=receive, send=send, fetchable=fetchable, held=held)
                except WrongClassError:
                    continue
                assert CLASSES[each.number] is each
                found += 1
    assert found == 13


def test_mb_8_fetchable_and_held_imply_persistent() -> None:
    assert all(each.persistent for each in CLASSES.values() if each.fetchable or each.held)


def test_mb_3_persistent_and_sent_by_the_owner_alone_is_no_class() -> None:
    with pytest.raises(WrongClassError, match="there is no class"):
        class_of(persistent=True, receive=None, send=True)
    with pytest.raises(WrongClassError, match="there is no class"):
        class_of(persistent=True, receive="through", send=False, fetchable=True)
