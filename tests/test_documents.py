"""The documents match the code: links, files, settings, programs, commands, and the API reference."""

import asyncio
import inspect
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, get_args
from uuid import uuid4

import pytest
import typer
from typer.core import TyperGroup

import broadloom
import broadloom.record
import broadloom.sync
from broadloom.cli.main import app
from broadloom.protocol import ChannelSettings, Tuning
from broadloom.protocol.events import Event, LinkDownReason, TraceEvent
from broadloom.protocol.identity import Identity
from broadloom.protocol.membership.discovery import REJECTION_TEXTS
from broadloom.testing.sim.steps import STEPS
from tools import cli_reference

TOP = Path(__file__).parent.parent
PAGES = sorted((*TOP.glob("*.md"), *(TOP / "docs").rglob("*.md")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(TOP).as_posix())
def test_links_have_a_target(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        linked = page.parent / path if path else page
        assert linked.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in _anchors(linked), f"{page.name} links to {target}"


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_first_page_links_to_every_page() -> None:
    pages = {page.relative_to(TOP / "docs").as_posix() for page in (TOP / "docs").rglob("*.md")}
    linked = re.findall(r"\]\(([^)#]+)\)", _text("docs/index.md"))
    assert sorted(pages - {"index.md", *linked}) == []


# -- ARCHITECTURE.md

SOURCE = TOP / "src" / "broadloom"


def _architecture() -> str:
    return (TOP / "ARCHITECTURE.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("part", ["protocol", "testing/sim"])
def test_architecture_names_every_file_of_the_core(part: str) -> None:
    named = re.findall(r"`([\w/]+\.py)`", _architecture())
    for source in sorted((SOURCE / part).rglob("*.py")):
        path = f"/{source.relative_to(SOURCE).as_posix()}"
        assert source.name == "__init__.py" or any(path.endswith(f"/{name}") for name in named), path


def test_architecture_mentions_every_package() -> None:
    text = _architecture()
    top_level = [path.parent.name for path in sorted(SOURCE.glob("*/__init__.py"))]
    assert [name for name in top_level if not re.search(rf"^  {name}/ ", text, re.M)] == [], "the map at the top"
    nested = [path.parent.relative_to(SOURCE).as_posix() for path in sorted(SOURCE.glob("*/*/__init__.py"))]
    assert [name for name in nested if f"{name}/" not in text] == []


def test_paths_in_the_architecture_exist() -> None:
    """A path is relative to the source or to the repository; a bare file name belongs to the package of its section."""
    for section in re.split(r"^##", _architecture(), flags=re.M):
        heading = re.match(r"# `(\w+)/`\n", section)
        for name in re.findall(r"`([\w./-]+/|[\w./-]+\.(?:py|md|x))`", section):
            roots = [SOURCE, TOP, *([SOURCE / heading[1]] if heading else [])]
            if "/" not in name and heading:
                assert list((SOURCE / heading[1]).rglob(name)), f"{name} in the section on {heading[1]}"
            else:
                assert any((root / name).exists() for root in roots), name


def test_names_in_the_architecture_exist() -> None:
    """`Class`, `Class.method` and `function` are defined in the source."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py")))
    bodies: dict[str, str] = {}
    for match in re.finditer(r"^class (\w+)\b.*?(?=^\S|\Z)", source, re.M | re.S):
        bodies[match[1]] = bodies.get(match[1], "") + match[0]
    for name in re.findall(r"`(_?[A-Z][a-z]\w*(?:\.\w+)?)`", _architecture()):
        kind, _, member = name.partition(".")
        assert kind in bodies, name
        assert not member or re.search(rf"^    (async )?def {member}\b", bodies[kind], re.M), name
    for name in re.findall(r"^\d+\. `[\w/]+\.py`: `([a-z_]+)`", _architecture(), re.M):
        assert re.search(rf"^(async )?def {name}\b", source, re.M), name


def test_every_step_is_documented() -> None:
    text = (TOP / "docs" / "simulation.md").read_text(encoding="utf-8")
    assert [name for name in STEPS if f"`{name}`" not in text] == []


def test_every_setting_has_a_docstring() -> None:
    folder = TOP / "src" / "broadloom" / "protocol"
    source = "".join((folder / name).read_text(encoding="utf-8") for name in ("settings.py", "constants.py"))
    for each in fields(Tuning):
        assert re.search(rf'^    {each.name}: [\w| ]+ = [^\n]+\n    """', source, re.M), each.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(TOP).as_posix())
def test_make_targets_in_a_document_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (TOP / "Makefile").read_text(encoding="utf-8"), re.M))
    assert set(re.findall(r"(?:^    |`)make ([a-z-]+)", page.read_text(encoding="utf-8"), re.M)) <= targets


# -- programs in the documents

BLOCK = re.compile(r"^```(python|sh) run\n(.*?)^```$", re.M | re.S)
"""A block marked `run` is a complete program or script. The blocks of a section run in order in one folder, so later
blocks can use the files of earlier ones."""
RUN_PAGES = [
    page for page in [TOP / "README.md", *sorted((TOP / "docs").glob("*.md"))] if BLOCK.search(page.read_text("utf-8"))
]
ANY_PYTHON = re.compile(r"^```python\n", re.M)
CHANNEL = re.compile(r"\b(auction|chess|chat|news|game|shop)/([a-z0-9-]+)\b")
CHANNEL_IN_USE = re.compile(r"connect\(\s*\"([^\"]+)|^\w+ = \"(\w+/[\w-]+)|broadloom (?:\w+ )*(\w+/[\w-]+)", re.M)
"""The name in a call of `connect`, in an assignment, or after a command."""
BOOTSTRAP_HOST = "10.0.0.5"
BLOCK_S = 100.0
"""A block takes about a second; a busy machine may take longer."""


class Section(NamedTuple):
    page: str
    heading: str
    blocks: list[tuple[str, str]]
    """Language and text."""


def _sections() -> list[Section]:
    cut = [
        Section(page.name, part.partition("\n")[0], BLOCK.findall(part))
        for page in RUN_PAGES
        for part in re.split(r"^##? ", page.read_text(encoding="utf-8"), flags=re.M)
    ]
    return [section for section in cut if section.blocks]


@pytest.mark.parametrize("section", _sections(), ids=lambda section: f"{section.page}: {section.heading}")
def test_programs_in_a_document_run(section: Section, tmp_path: Path) -> None:
    """On channels of their own, with this machine as bootstrap host, and as processes of their own, as a reader runs
    them: that is why Sybil, which runs blocks in the process of the tests, is not used."""
    suffix = uuid4().hex
    shell = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for language, text in section.blocks:
        program = CHANNEL.sub(rf"\1/\2-{suffix}", text).replace(BOOTSTRAP_HOST, "127.0.0.1")
        command = [sys.executable, "-W", "error", "-c"] if language == "python" else ["bash", "-euo", "pipefail", "-c"]
        result = subprocess.run(
            [*command, program], cwd=tmp_path, env=shell, capture_output=True, text=True, timeout=BLOCK_S, check=False
        )
        assert result.returncode == 0, f"{text}\n{result.stderr}"


def test_programs_in_the_documents_use_channels_that_the_test_renames() -> None:
    """Otherwise two runs of the tests on one machine would meet on the same channel."""
    blocks = [text for section in _sections() for _, text in section.blocks]
    names = {name for text in blocks for found in CHANNEL_IN_USE.findall(text) for name in found if name}
    assert len(names) > 20
    assert [name for name in sorted(names) if not CHANNEL.fullmatch(name)] == []


@pytest.mark.parametrize("page", RUN_PAGES, ids=lambda page: page.name)
def test_every_program_in_a_document_is_run(page: Path) -> None:
    assert not ANY_PYTHON.search(page.read_text(encoding="utf-8"))


# -- the reference


API = "docs/api.md"


def _text(page: str) -> str:
    return (TOP / page).read_text(encoding="utf-8")


def _rows(page: str, heading: str = "") -> dict[str, list[str]]:
    """The rows of all tables of a page, or of one section: the first cell, and the other cells."""
    text = _text(page)
    if heading:
        text = re.split(r"^## ", text.partition(f"\n## {heading}")[2], maxsplit=1, flags=re.M)[0]
        assert text, f"{page} has no section {heading}"
    rows = (line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `"))
    return {row[0].strip(" `"): [cell.strip() for cell in row[1:]] for row in rows}


def _shown(name: str, value: object) -> str:
    """A default value as the tables show it."""
    match value:
        case None:
            return "automatic"
        case bool():
            return "yes" if value else "no"
        case int() if "bytes" in name and value >= 1 << 20:
            return f"{value / (1 << 20):g} MiB"
        case int() if "bytes" in name:
            return f"{value / (1 << 10):g} KiB"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:g}"
        case _:
            return ""


def _public(kind: type) -> list[str]:
    own = [each for each in kind.__mro__ if each.__module__.startswith("broadloom.")]
    return [name for each in own for name in vars(each) if not name.startswith("_")]


def test_reference_lists_every_public_name() -> None:
    explained, _, listed = _text(API).partition("## All names of `broadloom`")
    assert [name for name in broadloom.__all__ if f"`{name}`" not in listed] == []
    names = set(re.findall(r"`[^`\n]+`", explained))
    words = {word for name in names for word in re.findall(r"\w+", name)}
    assert [name for name in broadloom.__all__ if name not in words | {"__version__"}] == []
    rows = _rows(API, "Recording")
    assert [name for name in broadloom.record.__all__ if name not in rows] == []
    assert rows["SCHEMA_VERSION"] == [f"{broadloom.record.SCHEMA_VERSION}."]


def test_reference_lists_every_parameter_of_connect_with_its_default() -> None:
    rows = _rows(API, "Joining")
    parameters = inspect.signature(broadloom.connect).parameters
    assert list(rows) == list(parameters)
    for name, parameter in parameters.items():
        if isinstance(parameter.default, int | float) and name not in ("port",):
            assert rows[name][0] == _shown(name, parameter.default), name
        elif parameter.default is None:
            assert rows[name][0].startswith(("none", "no", "`ChannelSettings()`")), name


def test_reference_lists_every_setting_with_its_value_in_each_profile() -> None:
    rows = _rows(API, "Settings: `ChannelSettings`")
    profiles = [ChannelSettings.lan(), ChannelSettings.wan(), ChannelSettings.many_small()]
    assert list(rows) == [each.name for each in fields(ChannelSettings)]
    for name, cells in rows.items():
        values = [_shown(name, getattr(profile, name)) for profile in profiles]
        assert [cell or cells[0] for cell in cells[:3]] == values, name


def test_reference_lists_every_attribute_of_both_channels() -> None:
    text = _text(API)
    names = [*_public(broadloom.Channel), "name", "missed_count"]
    assert [name for name in names if not re.search(rf"`(await |async for \w+ in )?channel\.{name}\b", text)] == []
    section = text.partition("## Synchronous programs")[2].partition("\n## ")[0]
    assert [name for name in _public(broadloom.sync.Channel) if f"`{name}`" not in section] == []


def test_reference_lists_messages_events_and_errors() -> None:
    rows = _rows(API, "Messages and events")
    assert {field.name for field in fields(broadloom.Message)} <= set(rows)
    for event in get_args(Event):
        if event is not TraceEvent:
            cells = rows[event.__name__]
            assert [name for name in event._fields if f"`{name}`" not in cells[-1]] == []
    assert [name for name in broadloom.Missed._fields if f"`{name}`" not in rows["Missed"][-1]] == []
    assert [each.name for each in LinkDownReason if each.name not in rows] == []
    text = _text(API)
    assert [each.name for each in (*broadloom.PeerState, *REJECTION_TEXTS) if f"`{each.name}`" not in text] == []
    assert [name for name in Identity._fields if f"`{name}`" not in text] == []
    errors = _rows(API, "Errors")
    kinds = {name: getattr(broadloom, name) for name in broadloom.__all__}
    assert set(errors) == {
        name for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, broadloom.BroadloomError)
    }
    assert [
        each for each in broadloom.Overflow if f"`Overflow.{each.name}`" not in text or f'`"{each.value}"`' not in text
    ] == []


def test_reference_lists_every_field_of_status() -> None:
    rows = _rows(API, "Status")
    for kind in (broadloom.Status, broadloom.NeighborStatus):
        assert [each.name for each in fields(kind) if each.name not in rows] == []


@pytest.mark.parametrize("page", [API, "docs/operations.md"])
def test_every_counter_is_explained(page: str) -> None:
    async def counters() -> dict[str, int]:
        async with broadloom.connect(f"test/{uuid4()}") as channel:
            return channel.status().counters

    rows = _rows(page)
    assert [name for name in asyncio.run(counters()) if name not in rows] == []


def test_every_setting_of_the_tape_is_documented_with_its_default() -> None:
    rows = _rows("docs/tape.md", "Settings")
    assert {name: cells[0].replace(",", "") for name, cells in rows.items()} == {
        each.name: _shown(each.name, each.default).replace(",", "") for each in fields(broadloom.record.TapeSettings)
    }


def test_every_command_is_documented() -> None:
    text = _text("docs/cli.md")
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    for name, command in root.commands.items():
        below = command.commands if isinstance(command, TyperGroup) else {}
        for words in [f"broadloom {name}", *(f"broadloom {name} {each}" for each in below)]:
            assert f"`{words}" in text, words


def test_commands_in_the_documents_exist_with_their_options() -> None:
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    for page in [page for page in PAGES if page.parent.name != "protocol"]:
        for line in re.findall(r"\bbroadloom ([a-z]+(?: [^`\n|;&#]*)?)", "\n".join(_commands_in(page))):
            words = line.split()
            command: Any = root
            while words and isinstance(command, TyperGroup):
                if words[0] not in command.commands and (default := getattr(command, "default", "")):
                    command = command.commands[default]
                    continue
                assert words[0] in command.commands, f"{page.name}: broadloom {line}"
                command = command.commands[words.pop(0)]
            options = {option for each in command.params for option in each.opts}
            words = words[: words.index("--")] if "--" in words else words  # a command of the user follows
            assert {word for word in words if word.startswith("--")} <= options, f"{page.name}: broadloom {line}"


def _commands_in(page: Path) -> list[str]:
    """Shell lines, indented or in a block, and inline code."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh(?: run)?\n(.*?)^```$", text, re.M | re.S)
    return [
        *blocks,
        *re.findall(r"^    +((?:\w+ \| )?broadloom .*)$", text, re.M),
        *re.findall(r"`(broadloom [a-z][^`]*)`", text),
    ]


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md", "docs/operations.md", "docs/security.md"])
def test_options_in_a_document_exist(page: str) -> None:
    """Options mentioned alone, as in `--no-tls`."""
    reference = _text("docs/cli.md")
    options = re.findall(r"`(--[a-z-]+)[ `]", _text(page))
    assert [option for option in options if not re.search(rf"{option}(?![\w-])", reference)] == []


def test_command_reference_is_current() -> None:
    expected = cli_reference.page()
    assert _text("docs/cli.md") == expected, "python -m tools.cli_reference > docs/cli.md"


def test_site_builds_with_every_page_and_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    result = subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=BLOCK_S, check=False)
    assert result.returncode == 0, result.stderr
    for page in (TOP / "docs").rglob("*.md"):
        built = tmp_path / page.relative_to(TOP / "docs").with_suffix(".html")
        built = built.with_name("index.html") if page.name == "README.md" else built
        loaded = re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"((?:https?:)?//[^\"]+)", built.read_text("utf-8"))
        assert loaded == [], page.name


def test_tests_named_in_the_security_guide_exist() -> None:
    """`tests/…::name` names a test; `test_…` alone one in the file that was named before it."""
    named, path = [], ""
    for file, test in re.findall(r"`(?:(tests/[\w/]+\.py)(?:::)?)?(test_\w+)?`", _text("docs/security.md")):
        path = file or path
        if test:
            named.append((path, test))
    assert len(named) > 15
    assert [each for each in named if not re.search(rf"def {each[1]}\(", _text(each[0]))] == []
