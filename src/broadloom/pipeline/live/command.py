"""What `broadloom pipeline run --follow` does: follows until Ctrl-C, and tells of each batch as it goes."""

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
    TableSetting("window_s", _RULES.window_s, "Length of the windows that rates, latency and fabric are told for."),
    TableSetting("lateness_s", _RULES.lateness_s, "How much older than the newest row of its channel a row may be."),
    TableSetting(
        "future_s",
        float(_RULES.future_s or 0),
        "How far ahead of this machine's clock a row may be; 0 for any, as on tapes of a simulation.",
    ),
    *sessions.SETTINGS,
)


def run(
    tapes: Path, out: Path, *, settings: Mapping[str, str], master: str = "", memory: str = "", json: bool = False
) -> int:
    """Follow tapes until it is stopped; returns the exit code."""
    chosen = _parse_settings(settings)
    future_s = chosen.pop("future_s") or None
    rules = WatermarkRules(window_s=chosen.pop("window_s"), lateness_s=chosen.pop("lateness_s"), future_s=future_s)

    def tell(done: FollowProgress) -> None:
        if json:
            told = {"batch": done.batch, "rows": done.rows, "aside_rows": done.excluded_rows, "seconds": done.seconds}
            print(json_module.dumps(told), flush=True)
        elif sys.stderr.isatty():
            late = f", {done.excluded_rows:,} late or ahead" if done.excluded_rows else ""
            told_of = f"batch {done.batch}: {done.rows:,} events of {done.channels} channels{late}"
            print(f"{told_of} ({done.seconds:.1f} s)", file=sys.stderr, flush=True)

    check_tapes(tapes)
    try:
        spark = session(master or None, name="broadloom follow", memory=memory or DRIVER_MEMORY)
        with _stop_on_signal() as end:
            last = follow(tapes, out, rules=rules, settings=chosen, stop=end, on_progress=tell, spark=spark)
    finally:
        stop()
    if last is not None and not json:
        print(
            f"{last.rows:,} events followed, {last.excluded_rows:,} of them late or ahead; the tables are in {out}/live"
        )
    return 0


def _parse_settings(settings: Mapping[str, str]) -> dict[str, Any]:
    known = {each.name: each for each in SETTINGS}
    for name in settings:
        if name not in known:
            there = ", ".join(sorted(known))
            raise TableSettingError(f"there is no setting {name!r} when tapes are followed; there are: {there}")
    chosen = {name: each.parse(settings[name]) if name in settings else each.default for name, each in known.items()}
    for name in ("window_s", "lateness_s"):
        if not float(chosen[name]) > 0:
            raise TableSettingError(f"the setting {name} has to be above 0, not {chosen[name]}")
    return chosen


@contextmanager
def _stop_on_signal() -> Iterator[threading.Event]:
    """Ctrl-C, or being asked to end, is how this ends well; a second one is taken at its word.

    To be entered when Spark runs: its start takes the signal for itself, and would break off a batch.
    """
    end = threading.Event()

    def ask(number: int, _frame: object) -> None:
        if end.is_set():
            raise KeyboardInterrupt
        end.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield end
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
