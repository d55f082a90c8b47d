"""A conversation from a store as Markdown, JSON and HTML; what is hostile stays text; mistakes are told."""

import html.parser
import json
import re
from pathlib import Path
from random import Random

import pytest
from markdown_it import MarkdownIt
from typer.testing import CliRunner, Result

from broadloom.apps.chat.export import FORMATS, export_group
from broadloom.apps.chat.storage import create_parent_directories, store_path
from broadloom.cli.main import app
from broadloom.groups import MessageId, SqliteStore
from broadloom.groups.message_fields import GroupDescriptor, GroupRecord, MembershipRecord
from broadloom.groups.model import Member, Post
from broadloom.groups.settings import RetentionPolicy
from broadloom.groups.store import StoredGroup

CLUB, OTHER = 0xC1, 0xC2
HOSTILE = [
    "<script>alert(1)</script> &amp; <img src=x onerror=alert(1)>",
    "# no heading\n- no list\n1. no list\n> no quote\n    no code\n```\nno code\n```",
    "[no link](javascript:alert(1)) ![no image](http://x/y.png) **not bold** _not slanted_ `no code` ~~not struck~~",
    "<!-- --> ]]> </article></main> \x1b[31m \u202egnp.exe",
    "| no | table |\n|---|---|\n$x$ \\[x\\] http",
    "\n\n        after empty lines",
    "===\n---\n***",
]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Anna's store of the lobby, in her data folder."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "1000")
    path = store_path("chat/lobby", "Anna")
    create_parent_directories(path)
    fill(path, ["Who plays white?", "I do", "me too\nperhaps"], [None, 1, 1])
    return path


def fill(path: Path, texts: list[str], parents: list[int | None]) -> None:
    stored = SqliteStore(path)
    stored.set_member(Member(1, "Anna"))
    stands = (MembershipRecord(1, "Anna", 1), MembershipRecord(2, "Ben <b>", 3), MembershipRecord(3, "Cleo", 2))
    for group, description in ((CLUB, "Chess club\nWednesdays & Fridays"), (OTHER, "Lunch")):
        stored.save_group(
            StoredGroup(GroupRecord(group, GroupDescriptor(1, description, RetentionPolicy()), stands), True)
        )
    history = stored.history(CLUB)
    for number, (text, parent) in enumerate(zip(texts, parents, strict=True), 1):
        above = MessageId(2, parent) if parent is not None else None
        history.add(Post(2, number, above, 1_700_000_000_000 + 1000 * number, text.encode()), "Ben <b>")
    stored.commit()
    stored.close()


def export(*args: str) -> Result:
    return CliRunner().invoke(app, ["chat", "export", *args])


def test_json_export_contains_everything(store: Path) -> None:
    told = json.loads(export("Chess club", "--format", "json").stdout)
    assert told["group"] == f"{CLUB:016x}"
    assert (told["name"], told["description"]) == ("Chess club", "Chess club\nWednesdays & Fridays")
    assert [(each["name"], each["is_member"]) for each in told["members"]] == [
        ("Anna", True),
        ("Ben <b>", True),
        ("Cleo", False),
    ]
    assert [(each["depth"], each["text"]) for each in told["messages"]] == [
        (0, "Who plays white?"),
        (1, "I do"),
        (1, "me too\nperhaps"),
    ]
    first, second, _ = told["messages"]
    assert second["reply_to"] == first["id"]
    assert first["sent"] == "2023-11-14T22:13:21Z"


def test_group_is_exported_by_id_into_a_file(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "club.md"
    assert export(f"{CLUB:016X}", "--out", str(out), "--store", str(store)).exit_code == 0
    assert out.read_text() == (
        "# Chess club\n\nWednesdays \\& Fridays\n\n"
        "- **Ben \\<b\\>** 2023-11-14T22:13:21Z  \n  Who plays white?\n"
        "  - **Ben \\<b\\>** 2023-11-14T22:13:22Z  \n    I do\n"
        "  - **Ben \\<b\\>** 2023-11-14T22:13:23Z  \n    me too  \n    perhaps\n"
    )


class Page(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.texts += data


def test_hostile_text_is_escaped_in_exports(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "hostile.db"
    fill(path, HOSTILE, [None, *range(1, len(HOSTILE))])
    page = Page()
    page.feed(export("chess CLUB", "--format", "html", "--store", str(path)).stdout)
    assert page.tags == {"html", "meta", "title", "style", "main", "h1", "p", "article", "b", "time"}
    markdown = export("Chess club", "--store", str(path)).stdout
    made = Page()
    # A bare address becomes a link in some readers, and shows where it leads.
    made.feed(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown))
    assert made.tags <= {"h1", "p", "ul", "li", "strong", "br"}, made.tags
    for text in HOSTILE:
        for line in text.split("\n"):
            shown = " ".join(line.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e").split())
            assert shown in " ".join(page.texts.split())
            assert shown in " ".join(made.texts.replace("\xa0", " ").split())


def test_unproven_message_is_marked_in_every_export(tmp_path: Path) -> None:
    path = tmp_path / "tickets.db"
    fill(path, ["nobody knows who wrote this"], [None])
    kept = SqliteStore(path)
    kept.history(CLUB).add(Post(2, 2, None, 1_700_000_009_000, b"proven", verified_name="Ben <b>"), "Ben <b>")
    kept.commit()
    kept.close()
    exports = {each: export("Chess club", "--format", each, "--store", str(path)).stdout for each in FORMATS}
    marked = {each["text"]: each["is_unproven"] for each in json.loads(exports.pop("json"))["messages"]}
    assert marked == {"nobody knows who wrote this": True, "proven": False}
    for name, text in exports.items():
        assert len(re.findall(r"Ben \S*b\S* \\?\(unproven\\?\)", text)) == text.count("unproven") == 1, name


def test_deep_and_orphaned_conversations_are_exported(tmp_path: Path) -> None:
    path, count = tmp_path / "deep.db", 3_000
    parents: list[int | None] = [None, *range(1, count)]
    parents[Random(7).randrange(100, 200)] = count + 5
    fill(path, [f"text {number}" for number in range(count)], parents)
    kept = SqliteStore(path)
    told = export_group(kept, "Chess club")
    kept.close()
    for name, write in FORMATS.items():
        text = "".join(write(told))
        assert f"text {count - 1}" in text
        if name != "json":
            assert text.count("(reply to a message that is not available)") == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["Bridge"], "in this store no group matches 'Bridge'; known groups: 00000000000000c1 'Chess club'"),
        (["Lunch", "--format", "pdf"], "unknown format 'pdf': choose one of md, json, html"),
        (["Lunch", "--name", "Ben"], "no store at"),
        (["Lunch", "--channel", "chat/none"], "no store for chat/none on this machine"),
        (["Lunch", "--store", "/no/such/file"], "no store at /no/such/file"),
        (["Lunch", "--out", "/no/such/dir/x"], "cannot write /no/such/dir/x"),
    ],
)
def test_export_mistakes_say_what_to_do(store: Path, words: list[str], told: str) -> None:
    result = export(*words)
    assert result.exit_code == 2
    assert told in result.stderr
    assert "Traceback" not in result.stderr


def test_export_asks_for_a_name_and_refuses_a_store_in_use(store: Path, tmp_path: Path) -> None:
    ben = store_path("chat/lobby", "Ben")
    fill(ben, [], [])
    assert "choose one with --name Anna, Ben" in export("Lunch").stderr
    kept = SqliteStore(ben)
    told = export("Lunch", "--name", "Ben")
    assert told.exit_code == 2
    assert "is in use: quit that chat before exporting" in told.stderr
    kept.close()
    assert export("Lunch", "--name", "Ben").stdout.startswith("# Lunch\n")
    (tmp_path / "nonsense").write_text("this is no store" * 1000)
    assert "is not a Broadloom store" in export("Lunch", "--store", str(tmp_path / "nonsense")).stderr
