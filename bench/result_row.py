"""The result of one measurement, as in the JSON file."""

from typing import Any

Row = dict[str, Any]
