"""Documents that say what is true: files, links, steps, settings."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from weft.fabric import Settings
from weft.sim.steps import STEPS

TOP = Path(__file__).parent.parent
PAGES = sorted((*TOP.glob("*.md"), *(TOP / "docs").rglob("*.md")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(TOP).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("part", ["fabric", "sim"])
def test_the_architecture_names_every_file(part: str) -> None:
    told = (TOP / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for source in sorted((TOP / "src" / "weft" / part).glob("*.py")):
        assert source.name == "__init__.py" or f"`{source.name}`" in told, f"{part}/{source.name} has no place"


def test_the_architecture_names_no_file_that_is_gone() -> None:
    told = (TOP / "ARCHITECTURE.md").read_text(encoding="utf-8")
    to_come = {"channel.py"}
    there = {source.name for source in (TOP / "src" / "weft").rglob("*.py")} | {
        source.name for source in (TOP / "tests").rglob("*.py")
    }
    named = {name.rpartition("/")[2] for name in re.findall(r"`([\w/]+\.py)`", told)}
    assert named - there - to_come == set()


def test_every_step_is_documented() -> None:
    told = (TOP / "docs" / "simulation.md").read_text(encoding="utf-8")
    assert [name for name in STEPS if f"`{name}`" not in told] == []


def test_every_setting_says_what_it_is_for() -> None:
    source = (TOP / "src" / "weft" / "fabric" / "settings.py").read_text(encoding="utf-8")
    for each in fields(Settings):
        assert re.search(rf'^    {each.name}: \w+ = [^\n]+\n    """', source, re.M), each.name


def test_the_readme_names_commands_that_exist() -> None:
    told = (TOP / "README.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", (TOP / "Makefile").read_text(encoding="utf-8"), re.M))
    assert set(re.findall(r"^    make (\w+)", told, re.M)) <= targets
