"""Settings of the live tables, as `pipeline run --follow --set NAME=VALUE` takes them."""

from collections.abc import Mapping
from typing import Any

from broadloom.pipeline.live.watermark import WatermarkRules
from broadloom.pipeline.table import TableSetting, TableSettingError
from broadloom.pipeline.tables import sessions

_RULES = WatermarkRules()

SETTINGS = (
    TableSetting("window_s", _RULES.window_s, "Length of the windows of traffic, latency and fabric snapshots."),
    TableSetting(
        "lateness_s", _RULES.lateness_s, "Maximum age of an event relative to the newest event of its channel."
    ),
    TableSetting(
        "future_s",
        float(_RULES.future_s or 0),
        "How far ahead of this machine's clock an event may be; 0 for no limit, as on tapes of a simulation.",
    ),
    *sessions.SETTINGS,
)


def parse_settings(given: Mapping[str, str]) -> tuple[WatermarkRules, dict[str, Any]]:
    """The watermark rules and the settings of the tables; `TableSettingError` if one is unknown or out of range."""
    known = {each.name: each for each in SETTINGS}
    for name in given:
        if name not in known:
            raise TableSettingError(f"unknown setting {name!r} with --follow; settings: {', '.join(sorted(known))}")
    chosen: dict[str, Any] = {
        name: each.parse(given[name]) if name in given else each.default for name, each in known.items()
    }
    for name in ("window_s", "lateness_s"):
        if not float(chosen[name]) > 0:
            raise TableSettingError(f"setting {name} must be above 0, not {chosen[name]}")
    future_s = chosen.pop("future_s") or None
    rules = WatermarkRules(window_s=chosen.pop("window_s"), lateness_s=chosen.pop("lateness_s"), future_s=future_s)
    return rules, chosen
