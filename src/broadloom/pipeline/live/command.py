"""Implementation of `broadloom pipeline run --follow`: follows until Ctrl-C and reports each batch."""

import json as json_module
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broadloom.pipeline.live.follow import FollowProgress, check_tapes, follow
from broadloom.pipeline.live.watermark import WatermarkRules
from broadloom.pipeline.spark_session import DRIVER_MEMORY, session, stop
from broadloom.pipeline.table import TableSetting, TableSettingError
from broadloom.pipeline.tables import sessions

_RULES = WatermarkRules()

SETTINGS = (
    TableSetting("window_s", _RULES.window_s, "Length of the windows of traffic, latency and fabric snapshots."),
    TableSetting(
        "lateness_s", _RULES.lateness_s, "How much older than the newest event of its channel an event may be."
    ),
    TableSetting(
        "future_s",
        float(_RULES.future_s or 0),
        "How far ahead of this machine's clock an event may be; 0 for no limit, as for tapes of a simulation.",
    ),
    *sessions.SETTINGS,
)


def run(
    tapes: Path, out: Path, *, settings: Mapping[str, str], master: str = "", memory: str = "", json: bool = False
) -> int:
    """Follow tapes until stopped. Returns the exit code."""
    chosen = _parse_settings(settings)
    future_s = chosen.pop("future_s") or None
    rules = WatermarkRules(window_s=chosen.pop("window_s"), lateness_s=chosen.pop("lateness_s"), future_s=future_s)

    def report(done: FollowProgress) -> None:
        if json:
            fields = {"batch_id": done.batch, "event_count": done.rows, "excluded_count": done.excluded_rows}
            print(json_module.dumps({**fields, "duration_ms": round(1000 * done.seconds, 3)}), flush=True)
        elif sys.stderr.isatty():
            excluded = f", {done.excluded_rows:,} excluded" if done.excluded_rows else ""
            text = f"batch {done.batch}: {done.rows:,} events of {done.channels} channels{excluded}"
            print(f"{text} ({done.seconds:.1f} s)", file=sys.stderr, flush=True)

    check_tapes(tapes)
    try:
        spark = session(master or None, name="broadloom follow", memory=memory or DRIVER_MEMORY)
        with _stop_on_signal() as end:
            last = follow(tapes, out, rules=rules, settings=chosen, stop=end, on_progress=report, spark=spark)
    finally:
        stop()
    if last is not None and not json:
        print(f"{last.rows:,} events, {last.excluded_rows:,} of them excluded; live tables are in {out}/live")
    return 0


def _parse_settings(settings: Mapping[str, str]) -> dict[str, Any]:
    known = {each.name: each for each in SETTINGS}
    for name in settings:
        if name not in known:
            raise TableSettingError(f"unknown setting {name!r} with --follow; settings: {', '.join(sorted(known))}")
    chosen = {name: each.parse(settings[name]) if name in settings else each.default for name, each in known.items()}
    for name in ("window_s", "lateness_s"):
        if not float(chosen[name]) > 0:
            raise TableSettingError(f"setting {name} must be above 0, not {chosen[name]}")
    return chosen


@contextmanager
def _stop_on_signal() -> Iterator[threading.Event]:
    """SIGINT and SIGTERM stop gracefully; a second signal interrupts.

    Must be entered after Spark has started: its startup installs its own handler, which would abort a batch.
    """
    end = threading.Event()

    def on_signal(number: int, _frame: object) -> None:
        if end.is_set():
            raise KeyboardInterrupt
        end.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield end
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
