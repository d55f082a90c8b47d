"""The reference of all commands as a page: `python -m broadloom.cli.reference > docs/cli.md`.

The rule: what the page says of a command is what its `--help` says. A test compares them.
"""

import re
from typing import Any

import typer

from broadloom.cli.main import app

_HEAD = """# The commands

Made from the code by `python -m broadloom.cli.reference`: what `--help` of each command says. All end with 0 if all
went well, 1 if it did not work out on the channel (not joined, nobody there, something lost), 2 for wrong use (words,
files, missing parts). Where Ctrl-C is the usual end it is 0, else 130.
"""


def page() -> str:
    commands = sorted(_all_commands(typer.main.get_command(app), ("broadloom",)), key=lambda each: each[0])
    return "\n".join([_HEAD, *(_section(path, command) for path, command in commands)])


def _all_commands(command: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    """Each command, with the words that call it."""
    below = getattr(command, "commands", {})
    found = [each for name, sub in below.items() for each in _all_commands(sub, (*path, name))]
    return found if len(path) == 1 or (below and not _is_runnable(command)) else [(path, command), *found]


def _is_runnable(group: Any) -> bool:
    """Whether a group of commands does something by itself."""
    return bool(getattr(group, "invoke_without_command", False))


def _section(path: tuple[str, ...], command: Any) -> str:
    context = command.context_class(command, info_name=" ".join(path))
    usage = " ".join([*path, *command.collect_usage_pieces(context)])
    rows = [record for each in command.params if (record := _option_row(each, context)) is not None]
    lines = [f"## {' '.join(path)}", "", f"    {usage}", "", (command.help or "").strip(), ""]
    if rows:
        lines += ["| argument or option | meaning |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _option_row(parameter: Any, context: Any) -> str | None:
    help_record = parameter.get_help_record(context)
    if help_record is None or "--help" in parameter.opts:
        return None
    name, meaning = (" ".join(str(each).split()).replace("|", "\\|") for each in help_record)
    return f"| `{re.sub(r' *<bool>', '', name)}` | {meaning} |"


if __name__ == "__main__":
    print(page(), end="")
