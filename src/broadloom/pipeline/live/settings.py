"""Settings of the live tables, as `pipeline run --follow --set NAME=VALUE` takes them."""

from collections.abc import Mapping
from typing import Any

from broadloom.pipeline.live.watermark import WatermarkRules
from broadloom.pipeline.table import TableSetting, TableSettingError
from broadloom.pipeline.tables import sessions

_RULES = WatermarkRules()

SETTINGS = (
    TableSetting("window_s", _RULES.window_s, "Length of the windows of rates, latency and fabric."),
    TableSetting("lateness_s", _RULES.lateness_s, "Maximum age of a row relative to the newest row of its channel."),
    TableSetting(
        "future_s",
        float(_RULES.future_s or 0),
        "How far ahead of this machine's clock a row may be; 0 for no limit, as on tapes of a simulation.",
    ),
    *sessions.SETTINGS,
)


def parse_settings(given: Mapping[str, str]) -> tuple[WatermarkRules, dict[str, Any]]:
    """The watermark rules and the settings of the tables; `TableSettingError` if one is unknown or out of range."""
    known = {each.name: each for each in SETTINGS}
    for name in given:
        if name not in known:
            raise TableSettingError(
                f"there is no setting {name!r} with --follow; there are: {', '.join(sorted(known))}"
            )
    chosen: dict[str, Any] = {
        name: each.parse(given[name]) if name in given else each.default for name, each in known.items()
    }
    for name in ("window_s", "lateness_s"):
        if not float(chosen[name]) > 0:
            raise TableSettingError(f"the setting {name} has to be above 0, not {chosen[name]}")
    future_s = chosen.pop("future_s") or None
    rules = WatermarkRules(window_s=chosen.pop("window_s"), lateness_s=chosen.pop("lateness_s"), future_s=future_s)
    return rules, chosen
