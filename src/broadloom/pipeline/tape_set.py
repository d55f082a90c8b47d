"""A folder of tapes as one Spark DataFrame of valid rows, plus the quarantine.

Spark reads exactly the files that passed the examination, with an explicit schema. Hidden files (with a leading dot or
underscore, because they are still being written) are not part of a tape yet.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from broadloom.errors import BroadloomError
from broadloom.pipeline.engine.scheduler import run_tasks
from broadloom.pipeline.quarantine import (
    FUTURE_TOLERANCE_S,
    FileReport,
    QuarantineReason,
    drop_duplicate_files,
    examine,
    quarantine,
)
from broadloom.pipeline.row_checks import CHECKED, row_problem
from broadloom.pipeline.spark_session import is_embedded
from broadloom.record.arrow_import import pa
from broadloom.record.schema import spark_ddl

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

LOCAL_FILES_MAX = 256
"""Up to this number, threads of this process examine the files; above, or on a cluster, Spark tasks do."""

FILES_PER_TASK = 64

FileId = tuple[str, int, int]
"""Path, size in bytes, and modification time in nanoseconds."""


class TapesNotFoundError(BroadloomError):
    """The folder does not exist or has no tapes."""


@dataclass(frozen=True, slots=True)
class TapeSet:
    folder: Path
    files: tuple[FileReport, ...]
    latest: datetime
    """Rows after this time are in the future."""

    @property
    def used(self) -> list[FileReport]:
        return [each for each in self.files if each.is_used]

    @property
    def rows(self) -> int:
        """Rows that are used."""
        return sum(each.used_rows for each in self.used)

    @property
    def future_rows(self) -> int:
        excluded = (one for each in self.files for one in each.excluded)
        return sum(one.count for one in excluded if one.reason is QuarantineReason.FUTURE_TIME)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.used)

    @property
    def quarantine(self) -> pl.DataFrame:
        return quarantine(self.files)


def file_ids(folder: Path) -> list[FileId]:
    """All files of the folder that are not hidden, sorted."""
    if not folder.is_dir():
        raise TapesNotFoundError(f"no directory of tapes at {folder}")
    found = []
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if any(part.startswith((".", "_")) for part in relative.parts) or path.is_dir():
            continue
        try:
            stat = path.stat()
        except OSError:
            found.append((relative.as_posix(), 0, 0))  # a broken link: quarantined when it is examined
            continue
        found.append((relative.as_posix(), stat.st_size, stat.st_mtime_ns))
    return found


def examine_tapes(
    folder: Path | str,
    *,
    spark: "SparkContext | None" = None,
    now: datetime | None = None,
    future_tolerance_s: float = FUTURE_TOLERANCE_S,
    on_progress: Callable[[int, int], None] | None = None,
) -> TapeSet:
    """Examine every file. With `spark`, its tasks examine many files, or those of a cluster.

    `on_progress` gets the number of files examined and the total.
    """
    folder = Path(folder)
    latest = (now or datetime.now(UTC)) + timedelta(seconds=future_tolerance_s)
    known = file_ids(folder)
    paths = [path for path, _, _ in known]
    if not paths:
        raise TapesNotFoundError(f"no tapes in {folder}")
    if spark is not None and (not is_embedded(str(spark.master)) or len(paths) > LOCAL_FILES_MAX):
        # Workers have other working directories.
        found = _examine_with_spark(spark, str(folder.absolute()), paths, latest)
        check_shared(folder, known, found)
    else:
        found = []
        with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
            for each in threads.map(lambda path: examine(str(folder), path, latest), paths):
                found.append(each)
                if on_progress is not None:
                    on_progress(len(found), len(paths))
    return TapeSet(folder, tuple(drop_duplicate_files(found)), latest)


def events(spark: "SparkSession", tapes: TapeSet) -> "DataFrame":
    """All valid rows."""
    paths = [spark_path(tapes.folder / each.path, as_pattern=True) for each in tapes.used]
    if not paths:
        return spark.createDataFrame([], spark_ddl())
    reader = spark.read.schema(spark_ddl()).option("basePath", spark_path(tapes.folder))
    frame = reader.parquet(*paths)
    if any(each.excluded for each in tapes.used):
        latest = tapes.latest

        def valid(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                rows = pl.DataFrame(pl.from_arrow(batch.select([*CHECKED, "event_date"])))
                yield batch.filter(rows.select(row_problem(rows.columns, latest).is_null()).to_series().to_arrow())

        frame = frame.mapInArrow(valid, frame.schema)
    return frame


def spark_path(path: Path, *, as_pattern: bool = False) -> str:
    """Spark takes URLs that are not percent-encoded, and expands glob characters unless they are escaped."""
    text = path.absolute().as_posix()
    return "file://" + (re.sub(r"([\\\\{}\[\]*?])", r"\\\1", text) if as_pattern else text)


def check_shared(folder: Path, files: Sequence[FileId], reports: Sequence[FileReport]) -> None:
    """A file that only the driver sees is not damaged: the cluster does not share the folder."""
    bytes_of = {path: size for path, size, _ in files}
    unseen = [
        each.path
        for each in reports
        if each.reason is QuarantineReason.UNREADABLE and not each.bytes and bytes_of[each.path]
    ]
    if unseen:
        raise TapesNotFoundError(
            f"the workers of the cluster cannot read {folder.absolute() / unseen[0]}: "
            f"tapes must be in a directory that all machines share under the same path"
        )


def _examine_with_spark(spark: "SparkContext", folder: str, paths: Sequence[str], latest: datetime) -> list[FileReport]:
    tasks = [paths[start : start + FILES_PER_TASK] for start in range(0, len(paths), FILES_PER_TASK)]
    found = run_tasks(spark, lambda some: [examine(folder, path, latest) for path in some], tasks)
    return [each for some in found for each in some]
