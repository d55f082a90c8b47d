"""Programs that write down what they were given."""

from collections.abc import Sequence
from pathlib import Path

from broadloom.channel.outgoing import Outgoing
from broadloom.rules import ProgramLimits, Rules

SCRIPT = """\
log=$1 name=$2
shift 2
data=$(cat; printf x)
data=${data%x}
printf '%s [%s] %s\\n' "$name" "$*" "$data" >> "$log"
printf '%s' "$name($data)"
"""
LIMITS = ProgramLimits(timeout_s=30)
"""A busy machine is no reason to fail."""


class Recorder:
    """Programs whose output is their name around the input. `calls` has name, arguments and input of each call."""

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        self._log = directory / "calls"
        script = directory / "record.sh"
        script.write_text(SCRIPT)
        self.programs = {name: ["/bin/sh", str(script), str(self._log), name] for name in names}

    @property
    def calls(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []


def message(data: bytes = b"data", **fields: object) -> Outgoing:
    return Outgoing(data, channel="office/hq", **fields)  # type: ignore[arg-type]


async def applied(rules: Rules, out: Outgoing) -> Outgoing:
    """What rules that neither send nor forward make of a message."""

    class Nowhere:
        name = "office/hq"
        _observer = None

    return await rules.apply(out, Nowhere())  # type: ignore[arg-type]
