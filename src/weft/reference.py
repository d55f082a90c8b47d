"""The reference of all commands as a page: `python -m weft.reference > docs/cli.md`.

The rule: what the page says of a command is what its `--help` says. A test compares them.
"""

import re
from typing import Any

import typer

from weft.cli import app

_HEAD = """# The commands

Made from the code by `python -m weft.reference`: what `--help` of each command says. All end with 0 if all went
well, 1 if it did not work out on the channel (not joined, nobody there, something lost), 2 for wrong use (words, files,
missing parts). Where Ctrl-C is the usual end it is 0, else 130.
"""


def page() -> str:
    commands = sorted(_all(typer.main.get_command(app), ("weft",)), key=lambda each: each[0])
    return "\n".join([_HEAD, *(_section(words, command) for words, command in commands)])


def _all(command: Any, words: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    """Each command, with the words that call it."""
    below = getattr(command, "commands", {})
    found = [each for name, sub in below.items() for each in _all(sub, (*words, name))]
    return found if len(words) == 1 or (below and not _runs(command)) else [(words, command), *found]


def _runs(group: Any) -> bool:
    """Whether a group of commands does something by itself."""
    return bool(getattr(group, "invoke_without_command", False))


def _section(words: tuple[str, ...], command: Any) -> str:
    context = command.context_class(command, info_name=" ".join(words))
    usage = " ".join([*words, *command.collect_usage_pieces(context)])
    rows = [record for each in command.params if (record := _record(each, context)) is not None]
    lines = [f"## {' '.join(words)}", "", f"    {usage}", "", (command.help or "").strip(), ""]
    if rows:
        lines += ["| argument or option | meaning |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _record(parameter: Any, context: Any) -> str | None:
    record = parameter.get_help_record(context)
    if record is None or "--help" in parameter.opts:
        return None
    name, meaning = (" ".join(str(each).split()).replace("|", "\\|") for each in record)
    return f"| `{re.sub(r' *<bool>', '', name)}` | {meaning} |"


if __name__ == "__main__":
    print(page(), end="")
