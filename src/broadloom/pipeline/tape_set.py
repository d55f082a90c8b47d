"""From a folder of tapes to one Spark DataFrame of good rows, and a list of what was set aside.

The rule: Spark reads exactly the files that were examined and found good, with an explicit schema; nothing is guessed
from a file. What is hidden (a leading dot or underscore: files that are still written) is no part of a tape yet.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from broadloom.errors import BroadloomError
from broadloom.pipeline.quarantine import (
    FUTURE_TOLERANCE_S,
    FileReport,
    QuarantineReason,
    drop_duplicate_files,
    examine,
    quarantine,
)
from broadloom.pipeline.spark_session import is_embedded
from broadloom.record.arrow_import import pa
from broadloom.record.schema import spark_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOCAL_FILES_MAX = 256
"""So many files are examined by threads of this process; more, or on a cluster, by Spark's tasks."""

FILES_PER_TASK = 64

FileId = tuple[str, int, int]
"""Path, bytes, and time of change in nanoseconds: another file has another one."""


class TapesNotFoundError(BroadloomError):
    """There is no such folder, or nothing in it."""


@dataclass(frozen=True, slots=True)
class TapeSet:
    folder: Path
    files: tuple[FileReport, ...]
    """Every file of the folder, with what is wrong with it."""
    latest: datetime
    """Rows after it are of the future."""

    @property
    def used(self) -> list[FileReport]:
        return [each for each in self.files if each.is_used]

    @property
    def rows(self) -> int:
        """That are used."""
        return sum((each.rows or 0) - each.future_rows for each in self.used)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.used)

    @property
    def quarantine(self) -> pa.Table:
        return quarantine(self.files)


def file_ids(folder: Path) -> list[FileId]:
    """All files of the folder that are not hidden, in order."""
    if not folder.is_dir():
        raise TapesNotFoundError(f"there is no folder of tapes at {folder}")
    found = []
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder)
        if any(part.startswith((".", "_")) for part in place.parts) or path.is_dir():
            continue
        try:
            told = path.stat()
        except OSError:
            found.append((place.as_posix(), 0, 0))  # a link to nowhere: examined, and set aside
            continue
        found.append((place.as_posix(), told.st_size, told.st_mtime_ns))
    return found


def examine_tapes(
    folder: Path | str,
    *,
    spark: "SparkSession | None" = None,
    now: datetime | None = None,
    future_tolerance_s: float = FUTURE_TOLERANCE_S,
    on_progress: Callable[[int, int], None] | None = None,
) -> TapeSet:
    """Look at every file. With `spark`, many files, or those of a cluster, are looked at by its tasks.

    `told` hears how many of how many files have been looked at.
    """
    folder = Path(folder)
    latest = (now or datetime.now(UTC)) + timedelta(seconds=future_tolerance_s)
    known = file_ids(folder)
    paths = [path for path, _, _ in known]
    if not paths:
        raise TapesNotFoundError(f"there are no tapes in {folder}")
    if spark is not None and (not is_embedded(str(spark.sparkContext.master)) or len(paths) > LOCAL_FILES_MAX):
        # Workers have other working folders.
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
    """All good rows."""
    from pyspark.sql import functions as F  # noqa: N812

    paths = [_spark_path(tapes.folder / each.path, as_pattern=True) for each in tapes.used]
    if not paths:
        return spark.createDataFrame([], spark_ddl())
    reader = spark.read.schema(spark_ddl()).option("basePath", _spark_path(tapes.folder))
    frame = reader.parquet(*paths)
    if any(each.future_rows for each in tapes.used):
        frame = frame.where(F.col("time") <= F.lit(tapes.latest))
    return frame


def _spark_path(path: Path, *, as_pattern: bool = False) -> str:
    """As Spark wants it: with its kind of file system, not percent-encoded, and in patterns nothing that is one."""
    text = path.absolute().as_posix()
    return "file://" + (re.sub(r"([\\\\{}\[\]*?])", r"\\\1", text) if as_pattern else text)


def check_shared(folder: Path, files: Sequence[FileId], reports: Sequence[FileReport]) -> None:
    """What this process sees and a worker does not is no bad file, but a folder that the cluster does not share."""
    bytes_of = {path: size for path, size, _ in files}
    unseen = [
        each.path
        for each in reports
        if each.reason is QuarantineReason.UNREADABLE and not each.bytes and bytes_of[each.path]
    ]
    if unseen:
        raise TapesNotFoundError(
            f"the workers of the cluster do not see {folder.absolute() / unseen[0]}: "
            f"tapes have to be in a folder that all machines share, under the same path"
        )


def _examine_with_spark(spark: "SparkSession", folder: str, paths: Sequence[str], latest: datetime) -> list[FileReport]:
    import pickle

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = [pickle.dumps(examine(folder, path, latest)) for path in batch["path"].to_pylist()]
            yield pa.RecordBatch.from_arrays([pa.array(found, pa.binary())], ["examined"])

    frame = spark.createDataFrame(pa.table({"path": pa.array(paths, pa.string())}))
    tasks = -(-len(paths) // FILES_PER_TASK)
    table = frame.repartition(max(tasks, spark.sparkContext.defaultParallelism)).mapInArrow(look, "examined BINARY")
    found = [pickle.loads(each) for each in table.toArrow()["examined"].to_pylist()]
    return sorted(found, key=lambda file: file.path)
