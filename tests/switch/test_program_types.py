"""Files of program types: what they say, and mistakes in them. Queues on disk: files that cannot be used."""

from pathlib import Path

import pytest

from broadloom.switch import Disposition, Scope, SqliteQueue, load_program_types

COMPLETE = """
[programs.starcalc]
start = ["starcalc", "--quiet"]
ready_s = 2
again_after_s = 3
idle_s = 600
start_for = ["ben", "ops-*"]
[[programs.starcalc.handles]]
operation = ["calc", "sum"]
file = "sheet"
scope = "file"
class = "request"
absent = "start"
rank = 5
"""


def load(folder: Path, text: str) -> dict:
    path = folder / "programs.toml"
    path.write_text(text)
    return load_program_types(path)


def test_program_type_has_command_times_sessions_and_patterns(tmp_path: Path) -> None:
    (kind,) = load(tmp_path, COMPLETE).values()
    assert (kind.name, kind.start, kind.ready_s, kind.again_after_s) == ("starcalc", ("starcalc", "--quiet"), 2, 3)
    assert (kind.idle_s, kind.start_for) == (600, ("ben", "ops-*"))
    (pattern,) = kind.handles
    assert (pattern.operations, pattern.files, pattern.scope) == (("calc", "sum"), ("sheet",), Scope.FILE)
    assert (pattern.disposition, pattern.rank, pattern.program) == (Disposition.START, 5, "starcalc")
    assert [kind.is_allowed(session, "anna") for session in ("anna", "ben", "ops-7", "mallory")] == [
        True, True, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[programs", "Expected"),
        ("[program.x]", "unknown entry 'program'"),
        ("[programs.x]", "needs at least one"),
        ('[programs.x]\nstart = "rm -rf /"', "programs.x.start must be a list of words"),
        ("[programs.x]\nready_s = 0", "needs at least one"),
        ('[programs.x]\nready_s = 0\n[[programs.x.handles]]\noperation = "y"', "ready_s must be a number of seconds"),
        ('[programs.x]\nshell = true\n[[programs.x.handles]]\noperation = "y"', "unknown entry 'shell'"),
        ("[[programs.x.handles]]\nrank = 1", r"handles\[0\].operation: None must be text"),
        ('[[programs.x.handles]]\noperation = "y"\nabsent = "start"', "needs a command"),
        ('[[programs.x.handles]]\noperation = "y"\nabsent = "default"', "absent must be one of fail, start, queue"),
        ('[[programs.x.handles]]\noperation = "y"\nscope = "galaxy"', "scope must be one of session, file"),
        ('[[programs.x.handles]]\noperation = "y"\nrank = "high"', "rank must be a whole number"),
        ("programs = 5", "programs must be a table"),
        ("programs.x = 5", "programs.x must be a table"),
    ],
)
def test_mistake_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as problem:
        load(tmp_path, text)
    assert "programs.toml" in str(problem.value)


def test_queue_survives_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    queue = SqliteQueue(path)
    queue.add("calc", b"copy", 1, 2)
    queue.close()
    again = SqliteQueue(path)
    assert [(each.program, each.copy, each.is_marked) for each in again.load()] == [("calc", b"copy", False)]
    again.close()
