"""The project speaks plain technical English and one vocabulary: old names and turns of phrase do not come back."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from broadloom.cli.main import app

TOP = Path(__file__).parent.parent
SOURCE = TOP / "src" / "broadloom"

BANNED = {
    # The old name, and words of a private language.
    r"\bweft\b": "Broadloom",
    r"\b(arrears|errands?|doorman|nursery|testimon(y|ies)|hearsay|slanders?)\b": "see docs/glossary.md",
    r"\bfell[- ]?behind\b|\bbehind=": "overflow",
    r"\bholes?\b(?![- ]punch)": "free slot",
    r"\bdense spots?\b": "cluster",
    r"\bsmall regime\b": "full mesh",
    r"\bfellow seekers?\b": "other seekers",
    r"\bportals?\b": "bootstrap host",
    r"\btrials?\b(?! and error| version| period)": "chaos run",
    r"\b(the|a) lab\b|\blab's\b": "local cluster",
    r"\bpromises?\b": "guarantee",
    r"\b(guilty|innocent) (rows?|deliver(y|ies)|messages?)\b": "violation",
    r"\bset aside\b": "quarantined, excluded",
    r"\bpip install ['\"]?broadloom\b": "an install from a checkout: the name is not registered",
    # Turns of phrase.
    r"\banew\b": "again",
    r"\bin good order\b": "gracefully",
    r"\bwithout a word\b": "without notice",
    r"\bwho(so|m)?ever\b": "a noun",
    r"\b(is|are|was|were|be|been|being|gets?|got) told\b|\btold (that|of|as|by|in|exactly|once|apart)\b": "reported",
    r"\b(unless|if) told\b": "by default",
    r"\b(at most|at least|for|after|of|than|in) so (many|much|long|few|often)\b": "the noun",
    r"\bso many (of|peers|messages|rows|bytes|times|seconds)\b": "the noun",
    r"\b(can|cannot|could|may|to) be had\b": "available",
    r"\b(is|are|was|were) lacking\b|\blacks? (a|one|some) (link|neighbou?r)s?\b": "missing",
    r"\bstands? still\b|\bstood still\b|\bstandstill\b": "stalled",
    r"\bis no matter\b": "does not matter",
    r"\bhangs? together\b": "is connected",
    r"\bfor ever\b": "forever",
    r"\bwork(ed|s)? out on\b": "failed",
    r"\bwrong use\b": "usage error",
    r"\b(go|goes|went) by (itself|themselves)\b": "automatically",
    r"\bcommands? (that|which) makes? them\b": "commands to reproduce",
    r"(?-i:\bSay (the|how|what|on|which)\b)": "Show, print, list",
    r"(?-i:\bTell (also|everything|of)\b)": "Print, report",
    r"(?-i:\bEnds? with [0-9]\b)": "Exit status",
    r"\bfor (people|programs)\b(?= *[.|,)])": "human-readable, machine-readable",
    r"\b(after|before|for|within|until|wait) so (many|long|much)\b(?! (as|that)\b)|\bso long, at most\b": "the noun",
    r"\b(takes?|taking) (its|their) time\b": "slow, takes longer",
    r"\b(shall|lest|whence|whilst|amongst|nought)\b": "plain words",
    r"\blink that leads nowhere\b|\bleads? nowhere\b": "broken link",
    r"\bis said (when|if|once|twice|that)\b|\bsaid (twice|anew)\b": "emitted, reported, sent",
    r"\b(cannot|can) be (told|had)\b": "distinguished, available",
    r"\bbeside other systems\b": "compared with",
    r"(?-i:\bWho (is|has|leaves|speaks|joins|sends)\b)(?! [^.]*\?)": "a noun",
    # American spelling.
    r"\bneighbours?\b|\bcolours?\b|\bbehaviours?\b|\bcentres?\b": "American spelling",
    r"\b(recogni|organi|seriali|summari|initiali|synchroni)s(e|ed|es|ing)\b": "American spelling",
}
PATTERN = re.compile("|".join(f"({pattern})" for pattern in BANNED), re.IGNORECASE)
BANNED_IN_TEST_NAMES = re.compile(r"_(who|whoever|one_that|what_is|told|anew|so_many|nobody|somebody|everybody)(_|$)")
ALLOWED = {"CHANGELOG.md": r"Renamed from Weft to Broadloom", "docs/glossary.md": r"SWAN calls it a portal"}


def findings(where: str, text: str) -> list[str]:
    text = re.sub(r"\s+", " ", text)
    if where in ALLOWED:
        text = re.sub(ALLOWED[where], "", text)
    return [f"{where}: ...{text[max(0, hit.start() - 30) : hit.end() + 30]}..." for hit in PATTERN.finditer(text)]


def pages() -> list[Path]:
    return sorted([*TOP.glob("*.md"), *(TOP / "docs").rglob("*.md"), *(TOP / "bench").glob("*.md")])


def _texts(source: str, *, all_strings: bool) -> Iterator[str]:
    """Comments, docstrings (of attributes too), strings in `raise`, and, where asked, all strings."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise):
            parts = list(ast.walk(node))
        elif isinstance(node, ast.Expr):
            parts = [node.value]
        else:
            parts = [node] if all_strings else []
        yield from (part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str))


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(TOP).as_posix())
def test_page_uses_plain_words(page: Path) -> None:
    assert findings(page.relative_to(TOP).as_posix(), page.read_text(encoding="utf-8")) == []


def _programs() -> list[Path]:
    folders = [SOURCE, TOP / "bench", TOP / "examples", TOP / "tools"]
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def _package_of(path: Path) -> str:
    return path.relative_to(SOURCE if path.is_relative_to(SOURCE) else TOP).parts[0]


@pytest.mark.parametrize("package", sorted({_package_of(path) for path in _programs()}))
def test_comments_docstrings_and_messages_use_plain_words(package: str) -> None:
    paths = [path for path in _programs() if _package_of(path) == package]
    shown_to_users = package in ("web", "apps", "cli")
    assert [
        finding
        for path in paths
        for text in _texts(path.read_text(encoding="utf-8"), all_strings=shown_to_users)
        for finding in findings(path.relative_to(TOP).as_posix(), text)
    ] == []


@pytest.mark.parametrize("name", ["Makefile", "pyproject.toml", "mkdocs.yml"])
def test_comments_of_configuration_use_plain_words(name: str) -> None:
    text = (TOP / name).read_text(encoding="utf-8")
    assert [each for comment in re.findall(r"#.*$", text, re.MULTILINE) for each in findings(name, comment)] == []


def test_labels_in_scripts_use_plain_words() -> None:
    scripts = (SOURCE / "web" / "static").glob("*.js")
    assert [each for path in scripts for each in findings(path.name, path.read_text(encoding="utf-8"))] == []


def test_help_of_every_command_uses_plain_words() -> None:
    def walk(words: tuple[str, ...]) -> Iterator[str]:
        shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
        yield shown
        commands = shown.partition("Commands")[2]
        for name in re.findall(r"^\W*([a-z][a-z-]+)\s{2,}", commands, re.MULTILINE):
            yield from walk((*words, name))

    assert [each for text in walk(()) for each in findings("help", text)] == []


def test_names_of_tests_are_sentences_about_behavior() -> None:
    names = [
        f"{path.relative_to(TOP)}: {name}"
        for path in sorted((TOP / "tests").rglob("test_*.py"))
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        if BANNED_IN_TEST_NAMES.search(name)
    ]
    assert names == []


def test_pattern_finds_what_it_bans() -> None:
    for text in (
        "Weft",
        "a hole",
        "who is told that",
        "made anew",
        "the neighbours",
        "Say how fast",
        "is lacking",
        "Who leaves",
    ):
        assert findings("", text), text
    assert not findings("", "a free slot is reported to the neighbors")
