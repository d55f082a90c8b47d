"""The peer behind a live stream: it joins and records in a process of its own.

Spark kills the process of a stream without notice, so the peer must not run there. This process runs while its standard
input is open: when its parent exits or crashes, it leaves gracefully and finishes its tape.

    input    one line of JSON with the options
    output   one line: `joined`, or `failed` and the reason; the process exits when the channel is closed
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

LEAVE_TIMEOUT_S = 40.0
"""Time to leave and to finish the tape."""

_JOINED = "joined"


class LiveRecordingError(BroadloomError):
    """The channel was not joined, or its tape cannot be written."""


class RecordingProcess:
    """Starts and stops the process."""

    def __init__(self, options: SourceOptions) -> None:
        self.channel = options.text("channel")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "broadloom.pipeline.spark_source.recording_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Not in the process group that is killed with the driver.
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(options.to_json() + "\n")
        self._process.stdin.flush()
        reply = self._process.stdout.readline().strip()
        if reply != _JOINED:
            self.close()
            raise LiveRecordingError(reply.partition(" ")[2] or f"{self.channel}: the recording process crashed")

    @property
    def has_ended(self) -> bool:
        """Whether the channel was closed or the process has exited."""
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
            channel.on_batch(lambda _batch: None)  # recorded on the tape; not needed here
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
