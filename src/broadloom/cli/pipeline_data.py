"""`broadloom pipeline sql`, `plot`, `tables`, `contracts`, `compact`."""

import tempfile
from pathlib import Path
from typing import Annotated

from broadloom.cli.exit_codes import FAILURE, SUCCESS, UsageError
from broadloom.cli.formatting import format_count
from broadloom.cli.options import JsonOption, MasterOption, TapesOption, argument, option
from broadloom.cli.output import print_json, print_result
from broadloom.cli.pipeline_options import CsvOption, DriverMemoryOption, OutOption, pipeline
from broadloom.cli.pipeline_output import BuildProgress, print_frame, print_rows
from broadloom.cli.runner import command


@command("pipeline sql", pipeline, extra="pipeline")
def sql(
    statement: Annotated[str, argument("A Spark SQL statement.", "SQL")],
    out: Annotated[Path | None, option("Directory of results: its tables by name.", "DIR", "--out", "-o")] = None,
    tapes: Annotated[Path | None, option("Directory of tapes: all valid rows as `tape`.", "DIR")] = None,
    catalog: Annotated[
        Path | None,
        option("Keep a catalog here, with the tables in its database `broadloom`.", "DIR"),
    ] = None,
    limit: Annotated[int, option("Maximum number of rows; 0 for all.", "N", min=0)] = 20,
    master: MasterOption = "",
    driver_memory: DriverMemoryOption = "",
    json: JsonOption = False,
    csv: CsvOption = False,
) -> None:
    """Run Spark SQL over tapes and tables.

    The tables of --out have their own names, its live tables start with `live_`, and the rows of --tapes are `tape`.

    With --catalog, the tables become external tables of Spark's catalog, which is kept in that directory, together with
    tables that you create.

    Examples:

    - `broadloom pipeline sql --out results "SELECT reason, count(*) FROM repairs GROUP BY reason"`
    - `broadloom pipeline sql --tapes tapes "SELECT kind, count(*) FROM tape GROUP BY kind" --csv`
    - `broadloom pipeline sql --out results --catalog catalog "CREATE TABLE slow AS SELECT * FROM latency"`
    """
    from broadloom.pipeline.spark_session import DRIVER_MEMORY, is_running, session, stop
    from broadloom.pipeline.sql import (
        DATABASE,
        catalog_settings,
        create_database,
        create_views,
        register_tables,
        run_sql,
    )

    if out is None and tapes is None and catalog is None:
        raise UsageError("name what to query: --out, --tapes or --catalog")
    is_ours = not is_running()
    settings = {"spark.sql.warehouse.dir": tempfile.gettempdir()} if catalog is None else catalog_settings(catalog)
    try:
        spark = session(
            master or None,
            name="broadloom sql",
            memory=driver_memory or DRIVER_MEMORY,
            quick=not master,
            settings=settings,
        )
        names = create_views(spark, statement, tapes, out if catalog is None else None)
        if catalog is not None:
            names += register_tables(spark, out) if out is not None else []
            create_database(spark)
            spark.catalog.setCurrentDatabase(DATABASE)
        found = run_sql(spark, statement, names)
        print_frame("", (found.limit(limit) if limit else found).toArrow(), json=json, csv=csv)
    finally:
        if is_ours:
            stop()


@command("pipeline plot", pipeline, extra="pipeline")
def plot(
    out: OutOption,
    image: Annotated[Path, option("Output image, .svg or .png.", "FILE")] = Path("channel.svg"),
    channel: Annotated[str, option("Channel ID, if the results have several channels.", "ID")] = "",
    json: JsonOption = False,
) -> None:
    """Plot the history of a channel.

    Shows fabric, latency, audience, revenue and repairs. Does not start Spark.

    Examples:

    - `broadloom pipeline plot --out results`
    - `broadloom pipeline plot --out results --image week.png --channel 9bae618a73998c1e`
    """
    from broadloom.pipeline.plot import plot_channel

    plotted = plot_channel(out, image, channel)
    print_result({"image": image, "channel": plotted}, f"{image}: channel {plotted}", json=json)


@command("pipeline tables", pipeline, extra="pipeline")
def tables(json: JsonOption = False) -> None:
    """List the tables and the question each one answers.

    With --json, also columns and settings.

    Examples:

    - `broadloom pipeline tables`
    - `broadloom pipeline tables --json | jq .columns`
    """
    from broadloom.pipeline.tables import all_tables

    if not json:
        print_rows("Tables", ["table", "question"], ((each.name, each.question) for each in all_tables()))
        return
    for each in all_tables():
        columns = [{"name": column.name, "type": column.spark, "about": column.about} for column in each.columns]
        settings = [{"name": one.name, "default": one.default, "about": one.about} for one in each.settings]
        print_json({"table": each.name, "question": each.question, "columns": columns, "settings": settings})


@command("pipeline contracts", pipeline, extra="pipeline")
def contracts() -> None:
    """Print the data contracts as JSON: the schema of the tape and of every table.

    Examples:

    - `broadloom pipeline contracts | jq .tables.latency.columns`
    """
    from broadloom.pipeline.contracts import contracts_json

    print(contracts_json(), end="")


@command("pipeline compact", pipeline, extra="pipeline")
def compact(
    tapes: TapesOption,
    out: Annotated[Path, option("Directory of the copy: new or empty.", "DIR", "--out", "-o")],
    json: JsonOption = False,
) -> int:
    """Copy tapes into few large files: one per channel, date and run.

    Many small files are slow to read. The original is not changed. Files that cannot be used are listed, and the exit
    status is 1 if rows are missing in the copy because of them. Does not start Spark.

    Examples:

    - `broadloom pipeline compact --tapes tapes --out compacted`
    """
    from broadloom.pipeline.compact import compact as compact_tapes
    from broadloom.pipeline.quarantine import quarantine

    with BuildProgress("compacting") as progress:
        done = compact_tapes(tapes, out, progress.update)
    excluded = quarantine(done.excluded)
    sizes = {"files": done.files, "rows": done.rows, "bytes": done.bytes}
    before = {"files": done.files_before, "bytes": done.bytes_before}
    text = (
        f"{format_count(done.rows, 'row')}: "
        f"{format_count(done.files_before, 'file')}, {done.bytes_before / 1e6:,.2f} MB became "
        f"{format_count(done.files, 'file')}, {done.bytes / 1e6:,.2f} MB in {out}"
    )
    print_result({"out": out, **sizes, "before": before, "excluded": excluded.to_dicts()}, text, json=json)
    if excluded.height and not json:
        print_frame("Not in the copy", excluded.select("file_path", "row_count", "reason", "detail"))
    return FAILURE if excluded["leaves_gap"].any() else SUCCESS
