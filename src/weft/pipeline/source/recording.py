"""The peer behind a live stream: it joins, and records onto its tape, in a process of its own.

Spark ends the process of a stream without asking it, so the peer must not live there. This one lives as long as its
standard input is open: when whoever started it is gone, in whatever way, it leaves in good order and finishes its tape.

    what is said to it   one line of JSON, the options; then nothing, until the end
    what it says         one line: `joined`, or `failed` and why; it ends when the channel is closed for all
"""

import json
import os
import subprocess
import sys
import threading

import weft.blocking
from weft.errors import WeftError
from weft.fabric import State
from weft.fabric.events import StateChanged
from weft.pipeline.source.options import Options
from weft.record import Tape

LEAVE_S = 30.0
"""For leaving and for finishing the tape."""

_JOINED = "joined"


class CannotRecord(WeftError):
    """The channel was not joined, or its tape cannot be written."""


class Recording:
    """Whoever started the process, and can end it."""

    def __init__(self, options: Options) -> None:
        self.channel = options.text("channel")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "weft.pipeline.source.recording"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Not one of those that are killed together with the driver.
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(options.to_json() + "\n")
        self._process.stdin.flush()
        said = self._process.stdout.readline().strip()
        if said != _JOINED:
            self.close()
            raise CannotRecord(said.partition(" ")[2] or f"{self.channel}: the recording process died")

    @property
    def is_over(self) -> bool:
        """Whether the channel was closed for all, or the process is gone."""
        return self._process.poll() is not None

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def main() -> int:
    options = Options(json.loads(sys.stdin.readline()))
    over = threading.Event()
    try:
        with Tape(options.text("tape"), settings=options.tape_settings()) as tape:
            channel = weft.blocking.connect(options.text("channel"), tape=tape, **options.joining())
            channel.on_batch(lambda _batch: None)  # the tape has it, and nobody else reads
            channel.on_event(lambda event: over.set() if event == StateChanged(State.LEFT) else None)
            threading.Thread(target=_wait_for_end, args=(over,), daemon=True).start()
            print(_JOINED, flush=True)
            over.wait()
            channel.leave()
    except (WeftError, OSError, ValueError) as problem:
        print("failed", str(problem).replace("\n", " "), flush=True)
        return 1
    return 0


def _wait_for_end(over: threading.Event) -> None:
    while sys.stdin.readline():
        pass
    over.set()


if __name__ == "__main__":
    sys.exit(main())
