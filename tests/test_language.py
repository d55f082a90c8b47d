"""The project speaks plain technical English and one vocabulary: old names and turns of phrase do not come back."""

import ast
import re
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
    # American spelling.
    r"\bneighbours?\b|\bcolours?\b|\bbehaviours?\b|\bcentres?\b": "American spelling",
    r"\b(recogni|organi|seriali|summari|initiali|synchroni)s(e|ed|es|ing)\b": "American spelling",
}
PATTERN = re.compile("|".join(f"({pattern})" for pattern in BANNED).replace("(?-i:", "(?-i:"), re.IGNORECASE)
BANNED_IN_TEST_NAMES = re.compile(r"_(who|whoever|one_that|what_is|told|anew|so_many|nobody|somebody|everybody)(_|$)")
ALLOWED = {"CHANGELOG.md": r"Renamed from Weft to Broadloom", "docs/glossary.md": r"SWAN calls it a portal"}


def findings(where: str, text: str) -> list[str]:
    text = re.sub(r"\s+", " ", text)
    if where in ALLOWED:
        text = re.sub(ALLOWED[where], "", text)
    return [f"{where}: ...{text[max(0, hit.start() - 30) : hit.end() + 30]}..." for hit in PATTERN.finditer(text)]


def pages() -> list[Path]:
    return sorted([*TOP.glob("*.md"), *(TOP / "docs").rglob("*.md"), *(TOP / "bench").glob("*.md")])


def _modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def _texts(tree: ast.Module, *, all_strings: bool) -> Iterator[str]:
    """Docstrings of modules, classes and public functions, strings in `raise`, and, where asked, all strings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if not getattr(node, "name", "").startswith("_"):
                yield ast.get_docstring(node) or ""
        if isinstance(node, ast.Raise) or all_strings:
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value
        if all_strings:
            return


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(TOP).as_posix())
def test_page_uses_plain_words(page: Path) -> None:
    assert findings(page.relative_to(TOP).as_posix(), page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("package", sorted({path.relative_to(SOURCE).parts[0] for path in _modules()}))
def test_docstrings_and_messages_use_plain_words(package: str) -> None:
    found = []
    for path in _modules():
        relative = path.relative_to(SOURCE)
        if relative.parts[0] != package:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        shown = relative.parts[0] in ("web", "apps", "cli")
        for text in _texts(tree, all_strings=shown):
            found += findings(relative.as_posix(), text)
    assert found == []


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
    for text in ("Weft", "a hole", "who is told that", "made anew", "the neighbours", "Say how fast", "is lacking"):
        assert findings("", text), text
    assert not findings("", "a free slot is reported to the neighbors")
