"""The command group `broadloom pipeline`, and options that its commands share."""

from pathlib import Path
from typing import Annotated

from broadloom.cli.options import command_group, option

pipeline = command_group(
    help="""Build tables from tapes: deliveries, latency, sessions, invoices.

    Runs on Spark, on this machine or on a cluster. Needs the extra `pipeline`.

    Examples:

    - `broadloom pipeline run --tapes tapes --out results`
    - `broadloom pipeline show audit_summary --out results`
    - `broadloom pipeline audit --tapes tapes`
    """,
)

OutOption = Annotated[Path, option("Directory of results.", "DIR", "--out", "-o")]
DriverMemoryOption = Annotated[str, option("Driver memory, as 4g.", "SIZE", show_default="4g")]
CsvOption = Annotated[bool, option("Print CSV.")]
SetOption = Annotated[
    list[str] | None,
    option("Table setting; repeatable. `broadloom pipeline tables --json` lists them.", "NAME=VALUE", "--set"),
]
