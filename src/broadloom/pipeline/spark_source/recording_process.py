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

import broadloom.sync
from broadloom.errors import BroadloomError
from broadloom.pipeline.spark_source.options import SourceOptions
from broadloom.protocol import PeerState
from broadloom.protocol.events import StateChanged
from broadloom.record import Tape

LEAVE_TIMEOUT_S = 30.0
"""For leaving and for finishing the tape."""

_JOINED = "joined"


class LiveRecordingError(BroadloomError):
    """The channel was not joined, or its tape cannot be written."""


class RecordingProcess:
    """Whoever started the process, and can end it."""

    def __init__(self, options: SourceOptions) -> None:
        self.channel = options.text("channel")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "broadloom.pipeline.spark_source.recording_process"],
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
            raise LiveRecordingError(said.partition(" ")[2] or f"{self.channel}: the recording process died")

    @property
    def has_ended(self) -> bool:
        """Whether the channel was closed for all, or the process is gone."""
        return self._process.poll() is not None

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(LEAVE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def main() -> int:
    options = SourceOptions(json.loads(sys.stdin.readline()))
    over = threading.Event()
    try:
        with Tape(options.text("tape"), settings=options.tape_settings()) as tape:
            channel = broadloom.sync.connect(options.text("channel"), tape=tape, **options.connect_kwargs())
            channel.on_batch(lambda _batch: None)  # the tape has it, and nobody else reads
            channel.on_event(lambda event: over.set() if event == StateChanged(PeerState.LEFT) else None)
            threading.Thread(target=_wait_for_end, args=(over,), daemon=True).start()
            print(_JOINED, flush=True)
            over.wait()
            channel.leave()
    except (BroadloomError, OSError, ValueError) as problem:
        print("failed", str(problem).replace("\n", " "), flush=True)
        return 1
    return 0


def _wait_for_end(over: threading.Event) -> None:
    while sys.stdin.readline():
        pass
    over.set()


if __name__ == "__main__":
    sys.exit(main())
