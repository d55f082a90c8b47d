"""Spark SQL over tapes and tables by name, and the tables of a folder of results in Spark's catalog.

Without a catalog, tables are temporary views. With one (a folder with a metastore on Derby, which comes with Spark, or
whatever catalog a session is configured with), they are external tables in the database `broadloom`, which other
programs of the same catalog see too. They refer to the files of a build: register them again after the next one.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from broadloom.errors import BroadloomError
from broadloom.pipeline.live.store import LiveStore
from broadloom.pipeline.live.tables import TABLES as LIVE_TABLES
from broadloom.pipeline.results import Results
from broadloom.pipeline.tables import table
from broadloom.pipeline.tape_set import events, examine_tapes, spark_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DATABASE = "broadloom"
TAPE = "tape"
"""Name of the view of all valid rows of the tapes."""
LIVE_PREFIX = "live_"


class SqlError(BroadloomError):
    """The statement is wrong, or names what does not exist."""


def catalog_settings(folder: Path) -> dict[str, str]:
    """Settings of a session whose catalog is kept in this folder. One process at a time can use it."""
    place = folder.absolute()
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={place / 'metastore'};create=true",
        "spark.hadoop.datanucleus.schema.autoCreateTables": "true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
    }


def create_database(spark: "SparkSession", database: str = DATABASE) -> None:
    spark.sql(f"CREATE DATABASE IF NOT EXISTS `{database}`")


def register_tables(spark: "SparkSession", out: Path | str, database: str = DATABASE) -> list[str]:
    """Make the tables of a folder of results external tables in the session's catalog; returns their names."""
    results = Results(out)
    create_database(spark, database)
    built = results.manifest().tables
    for name, each in built.items():
        location = spark_path(results.table_path(name, each))
        columns = ", ".join(
            f"`{column.name}` {column.spark} COMMENT '{_quoted(column.about)}'" for column in table(name).columns
        )
        spark.sql(f"DROP TABLE IF EXISTS `{database}`.`{name}`")  # external: the files stay
        spark.sql(
            f"CREATE TABLE `{database}`.`{name}` ({columns}) USING parquet LOCATION '{_quoted(location)}' "
            f"COMMENT '{_quoted(table(name).question)}'"
        )
    return list(built)


def create_views(spark: "SparkSession", statement: str, tapes: Path | None, out: Path | None) -> list[str]:
    """Temporary views of the tables, and of what else the statement names: the tape and live tables."""
    names = []
    if tapes is not None:
        names.append(TAPE)
        if re.search(rf"\b{TAPE}\b", statement, re.IGNORECASE):
            events(spark, examine_tapes(tapes, spark=spark.sparkContext)).createOrReplaceTempView(TAPE)
    if out is None:
        return names
    results, live = Results(out), LiveStore(out / "live")
    for name in results.manifest().tables:
        files = [spark_path(path) for path in results.files(name)]
        spark.read.schema(table(name).ddl).parquet(*files).createOrReplaceTempView(name)
        names.append(name)
    for name, each in LIVE_TABLES.items() if live.manifest() is not None else ():
        view = f"{LIVE_PREFIX}{name}"
        if re.search(rf"\b{view}\b", statement, re.IGNORECASE):
            rows = live.read(name).replace_schema_metadata(None)
            spark.createDataFrame(rows, each.ddl).createOrReplaceTempView(view)
        names.append(view)
    return names


def run_sql(spark: "SparkSession", statement: str, names: list[str]) -> "DataFrame":
    """Run a statement; `names` are those it can use, for the error message."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        return spark.sql(statement)
    except (AnalysisException, ParseException) as problem:
        reason = next((line for line in str(problem).splitlines() if line.strip()), "not a statement")
        known = f"; tables: {', '.join(names)}" if "TABLE_OR_VIEW_NOT_FOUND" in reason else ""
        raise SqlError(f"{reason.split(' SQLSTATE')[0]}{known}") from problem


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
