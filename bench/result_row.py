"""What was measured once: names and numbers, as they stand in the JSON file."""

from typing import Any

Row = dict[str, Any]
