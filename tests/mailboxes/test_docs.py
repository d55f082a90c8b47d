"""docs/mailboxes.md matches the code."""

import re
from dataclasses import fields
from pathlib import Path

from broadloom import mailboxes
from broadloom.mailboxes import CLASSES, OPERATIONS, MailboxSettings

PAGE = (Path(__file__).parents[2] / "docs" / "mailboxes.md").read_text(encoding="utf-8")


def _rows(pattern: str) -> list[list[str]]:
    lines = [line for line in PAGE.splitlines() if re.match(pattern, line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_mb_4_classes_in_the_document_are_those_of_the_code() -> None:
    def yes(has: bool) -> str:
        return "yes" if has else ""

    assert _rows(r"\| \d+ \|") == [
        [
            str(number),
            "latest" if each.persistent else "queue",
            each.receive or "",
            yes(each.send),
            yes(each.fetchable),
            yes(each.held),
            " ".join(OPERATIONS[number]),
        ]
        for number, each in CLASSES.items()
    ]


def test_settings_in_the_document_are_those_of_the_code() -> None:
    rows = _rows(r"\| `\w+_s` \|")
    assert [(name, default) for name, default, _ in rows] == [
        (f"`{each.name}`", f"{each.default:,g}") for each in fields(MailboxSettings)
    ]


def test_document_names_everything_public() -> None:
    hidden = {"LAYER", "KEEPER_LAYER", "MailboxEvent"}
    assert [name for name in mailboxes.__all__ if name not in hidden and not re.search(rf"`{name}\b", PAGE)] == []
