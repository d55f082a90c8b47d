"""`broadloom pipeline bills`: issued invoices for other systems."""

from typing import Annotated

from broadloom.cli.options import JsonOption, option
from broadloom.cli.pipeline_options import OutOption, pipeline
from broadloom.cli.runner import command


@command("pipeline bills", pipeline, extra="pipeline")
def bills(
    out: OutOption,
    month: Annotated[str, option("Only this month, as 2027-01.", "MONTH")] = "",
    json: JsonOption = False,
) -> None:
    """Print issued invoices and corrections: as CSV for a spreadsheet, with --json as meter events.

    The identifier of a meter event is the ID of its invoice: a payment provider that uses it as idempotency key can get
    the same events any number of times. Corrections are events with the difference. Does not start Spark.

    Examples:

    - `broadloom pipeline bills --out results --month 2027-01`
    - `broadloom pipeline bills --out results --json`
    """
    from broadloom.pipeline.billing.export import ExportFormat, issued_rows, lines
    from broadloom.pipeline.results import Results
    from broadloom.pipeline.tables import table

    rows = issued_rows(Results(out).read(table("invoices")))
    chosen = [row for row in rows if not month or row["billing_month"] == month]
    for line in lines(chosen, ExportFormat.EVENTS if json else ExportFormat.CSV):
        print(line)
