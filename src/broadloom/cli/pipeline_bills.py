"""`broadloom pipeline bills`: issued invoices for other systems."""

from enum import StrEnum
from typing import Annotated

from broadloom.cli.options import option
from broadloom.cli.pipeline_options import OutOption, pipeline
from broadloom.cli.runner import command


class FormatChoice(StrEnum):
    csv = "csv"
    events = "events"


@command("pipeline bills", pipeline, extra="pipeline")
def bills(
    out: OutOption,
    format: Annotated[FormatChoice, option("CSV for a spreadsheet, or one meter event per line.")] = FormatChoice.csv,
    month: Annotated[str, option("Only this month, as 2027-01.", "MONTH")] = "",
) -> None:
    """Print issued invoices and corrections, for a spreadsheet or a payment provider.

    The identifier of a meter event is the ID of its invoice: a provider that uses it as idempotency key can get the
    same events any number of times. Corrections are events with the difference. Does not start Spark.

    Examples:

    - `broadloom pipeline bills --out results --month 2027-01 > january.csv`
    - `broadloom pipeline bills --out results --format events`
    """
    from broadloom.pipeline.billing.export import ExportFormat, issued_rows, lines
    from broadloom.pipeline.results import Results
    from broadloom.pipeline.tables import table

    rows = issued_rows(Results(out).read(table("invoices")))
    chosen = [row for row in rows if not month or row["billing_month"] == month]
    for line in lines(chosen, ExportFormat(format.value)):
        print(line)
