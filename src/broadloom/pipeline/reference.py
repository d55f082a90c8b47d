"""The reference of all tables and settings as a page: `python -m broadloom.pipeline.reference > docs/tables.md`.

The rule: what the page says of a table is what its code says. A test compares them.
"""

from broadloom.pipeline.table import Table, TableSetting
from broadloom.pipeline.tables import all_tables

_HEAD = """# The tables

Made from the code by `python -m broadloom.pipeline.reference`. How they are built, and what to do with them, is told in
[pipeline.md](pipeline.md). `broadloom pipeline show TABLE --out DIR` prints any of them; they are Parquet, so
everything that reads Parquet reads them.
"""


def page() -> str:
    tables = all_tables()
    parts = [_HEAD, _overview(tables), *map(_section, tables), _settings(tables)]
    return "\n".join(parts)


def _overview(tables: tuple[Table, ...]) -> str:
    rows = [f"| [{each.name}](#{each.name}) | {each.question} |" for each in tables]
    return "\n".join(["| table | question |", "|---|---|", *rows, ""])


def _section(table: Table) -> str:
    rows = [f"| `{each.name}` | {each.spark.lower()} | {each.about} |" for each in table.columns]
    made_from = ", ".join(f"`{name}`" for name in table.depends_on)
    lines = [f"## {table.name}", "", table.question, ""]
    if made_from:
        lines += [f"Made from {made_from}.", ""]
    return "\n".join([*lines, "| column | type | meaning |", "|---|---|---|", *rows, ""])


def _settings(tables: tuple[Table, ...]) -> str:
    known: dict[str, tuple[TableSetting, list[str]]] = {}
    for table in tables:
        for each in table.settings:
            known.setdefault(each.name, (each, []))[1].append(table.name)
    rows = [
        f"| `{name}` | {_default_text(each)} | {', '.join(used)} | {each.about} |"
        for name, (each, used) in known.items()
    ]
    return "\n".join(
        [
            "## Settings",
            "",
            "`broadloom pipeline run --set NAME=VALUE`, as often as needed.",
            "",
            "| setting | default | used by | meaning |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _default_text(setting: TableSetting) -> str:
    return "none" if setting.default == "" else f"{setting.default}"


if __name__ == "__main__":
    print(page(), end="")
