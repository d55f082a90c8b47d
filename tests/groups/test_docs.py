"""docs/groups.md matches the code: messages, settings, events and limits. Its program runs."""

import asyncio
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

import broadloom
from broadloom.groups import GroupEvent, Groups, GroupSettings, settings
from broadloom.groups.codec import message_types
from tests.channel.joined import QUICK, unique_name
from tests.support import eventually

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs" / "groups.md").read_text(encoding="utf-8")


def test_every_message_is_documented() -> None:
    for number, kind in message_types().items():
        assert f"| {number} | `{kind.__name__}` |" in PAGE
        assert "Causes:" in (kind.__doc__ or "")


@pytest.mark.parametrize(
    "name", [*(each.name for each in fields(GroupSettings)), *(kind.__name__ for kind in get_args(GroupEvent))]
)
def test_every_setting_and_event_is_documented(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_documented_limits_match_settings() -> None:
    for name in ("GROUPS_MAX", "MEMBERS_MAX", "MEMBERSHIPS_MAX", "AUTHORS_MAX", "GAPS_MAX", "PENDING_MAX"):
        assert f"{getattr(settings, name):,}" in PAGE, name
    assert f"{settings.DATA_BYTES_MAX >> 10} KiB" in PAGE


async def test_example_program_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"```python\n(.*?)```", PAGE, re.S)
    assert found is not None
    name, file = unique_name(), tmp_path / "anna.db"
    program = found[1].replace('"chat/lobby"', repr(name)).replace('"anna.db"', repr(str(file)))
    space: dict[str, Any] = {}
    exec(program.replace("asyncio.run(main())", ""), space)
    running = asyncio.create_task(space["main"]())
    async with broadloom.connect(name, settings=QUICK) as channel, Groups(channel, "Ben") as ben:
        await eventually(ben.list_groups)
        club = await ben.join(ben.list_groups()[0])
        question = await club.receive(20)
        await club.send_text("I do", reply_to=question)
        async with asyncio.timeout(20):
            await running
    shown = capsys.readouterr().out.splitlines()
    assert shown[-2:] == ["Who plays white?", "  I do"]
    assert file.exists()
