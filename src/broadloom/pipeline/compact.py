"""Compacts tapes: a copy with one file per channel, date and run, instead of one a minute.

The copy is complete or reported: every file is examined as for a build, and files that cannot be used are returned with
the reason. The original is not changed, because streams remember which of its files they have read.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from broadloom.errors import BroadloomError
from broadloom.pipeline.quarantine import FileReport
from broadloom.pipeline.tape_set import examine_tapes
from broadloom.record.arrow_import import pa, pq
from broadloom.record.schema import CHANNEL_KEY, file_schema, with_all_columns
from broadloom.record.tape_file import make_folder, open_writer, sync_folder
from broadloom.record.unfinished_file import UnfinishedFile

ROW_GROUP_ROWS = 1 << 20


class CompactError(BroadloomError):
    """The copy cannot be written there."""


@dataclass(slots=True)
class CompactResult:
    files_before: int = 0
    bytes_before: int = 0
    files: int = 0
    bytes: int = 0
    rows: int = 0
    excluded: list[FileReport] = field(default_factory=list)
    """Files that are not in the copy. Those with the rows of another file leave no gap."""


def compact(tapes: Path, out: Path, on_progress: Callable[[int, int], None] | None = None) -> CompactResult:
    """Write a compacted copy to a folder that is empty or does not exist. `on_progress` gets files done and total."""
    if out.exists() and any(out.iterdir()):
        raise CompactError(f"{out} is not empty; choose another directory")
    examined = examine_tapes(tapes)
    result = CompactResult(len(examined.used), examined.bytes)
    result.excluded = [each for each in examined.files if not each.is_used]
    groups: dict[tuple[str, str], list[FileReport]] = {}
    for each in examined.used:
        groups.setdefault((str(Path(each.path).parent), each.run_id or ""), []).append(each)
    done = 0
    for (folder, run_id), files in sorted(groups.items()):
        files.sort(key=lambda file: file.first_ordinal or 0)
        path = _merge(tapes, out / folder, run_id, files, out)
        done += len(files)
        result.files += 1
        result.bytes += path.stat().st_size
        result.rows += pq.read_metadata(path).num_rows
        if on_progress is not None:
            on_progress(done, result.files_before)
    return result


def _merge(tapes: Path, folder: Path, run_id: str, files: list[FileReport], top: Path) -> Path:
    with pq.ParquetFile(tapes / files[0].path) as first:
        channel = first.schema_arrow.metadata[CHANNEL_KEY].decode()
    schema = file_schema(channel, run_id)
    top.mkdir(parents=True, exist_ok=True)
    make_folder(folder, top)
    target = UnfinishedFile(folder / f"{run_id}-000001.parquet")
    try:
        with open_writer(target.sink, schema) as writer:
            for table in _row_groups(tapes, files, schema):
                writer.write_table(table, row_group_size=table.num_rows)
        target.sync()
        target.publish()
        sync_folder(folder)
        target.sink.close()
    except OSError as problem:
        target.remove()
        raise CompactError(f"the copy cannot be written to {top}: {problem.strerror or problem}") from problem
    except ValueError as problem:
        target.remove()
        names = ", ".join(each.path for each in files[:3])
        raise CompactError(f"{names}: rows that a tape cannot have ({problem}); move the file away") from problem
    return target.path


def _row_groups(tapes: Path, files: list[FileReport], schema: pa.Schema) -> Iterator[pa.Table]:
    """All rows in order, in tables of about `ROW_GROUP_ROWS` rows."""
    pending: list[pa.Table] = []
    for each in files:
        with pq.ParquetFile(tapes / each.path, page_checksum_verification=True) as file:
            for batch in file.iter_batches(batch_size=ROW_GROUP_ROWS, columns=schema.names, use_threads=False):
                rows = with_all_columns(pa.Table.from_batches([batch]), schema.names)
                pending.append(rows.select(schema.names).cast(schema.remove_metadata()))
                if sum(one.num_rows for one in pending) >= ROW_GROUP_ROWS:
                    yield pa.concat_tables(pending).replace_schema_metadata(schema.metadata)
                    pending.clear()
    if pending:
        yield pa.concat_tables(pending).replace_schema_metadata(schema.metadata)
