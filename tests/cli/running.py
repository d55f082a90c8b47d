"""The command `broadloom` as its users run it: a process with real sockets, whose output is waited for with a
deadline."""

import asyncio
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import broadloom.sync
from broadloom.protocol.events import LinkDown, LinkUp
from broadloom.wire.broadcast_frame import PayloadKind, Priority
from broadloom.wire.file_payload import encode_file

WITHIN_S = 30.0
"""Far more than is needed: these tests share their machine with others."""
COMMAND = Path(sys.executable).with_name("broadloom")
INTERRUPTED = 130


def new_channel() -> str:
    return f"test/{uuid4().hex}"


def wait_until(condition: Callable[[], bool], what: str, within_s: float = WITHIN_S) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        time.sleep(0.01)


class ProcessResult(NamedTuple):
    code: int
    out: str
    err: str


class CommandProcess:
    """One process. `terminal`: its input and output are a terminal, and what it prints is in `out`."""

    def __init__(self, *args: str, env: dict[str, str] | None = None, terminal: bool = False) -> None:
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell; children inherit it
            signal.signal(signal.SIGINT, signal.default_int_handler)
        environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200", "TERM": "xterm", **(env or {})}
        self.terminal, inner = pty.openpty() if terminal else (-1, -1)
        self.process = subprocess.Popen(
            [COMMAND, *args],
            stdin=inner if terminal else subprocess.PIPE,
            stdout=inner if terminal else subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        if terminal:
            os.close(inner)
        self._texts = {"out": b"", "err": b""}
        self._changed = threading.Condition()
        self._stopped = False
        assert self.process.stderr is not None
        out = self.terminal if self.process.stdout is None else self.process.stdout.fileno()
        self._threads = [self._read("out", out), self._read("err", self.process.stderr.fileno())]

    def _read(self, name: str, file: int) -> threading.Thread:
        def work() -> None:
            with suppress(OSError):  # a terminal ends with an error
                while not (name == "out" and self._stopped):
                    if not select.select([file], [], [], 0.05)[0]:
                        continue
                    if not (data := os.read(file, 65536)):
                        return
                    with self._changed:
                        self._texts[name] += data
                        self._changed.notify_all()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        return thread

    @property
    def out(self) -> str:
        return self._texts["out"].decode(errors="replace")

    @property
    def err(self) -> str:
        return self._texts["err"].decode(errors="replace")

    def wait_for_output(self, text: str, where: str = "out") -> None:
        """Wait until it has printed this."""
        wanted = text.encode()
        with self._changed:
            is_printed = self._changed.wait_for(lambda: wanted in self._texts[where], WITHIN_S)
        assert is_printed, f"no {text!r} within {WITHIN_S} s; printed: {self.out!r}, complained: {self.err!r}"

    def type(self, text: str) -> None:
        if self.terminal >= 0:
            os.write(self.terminal, text.encode())
        else:
            assert self.process.stdin is not None
            self.process.stdin.write(text.encode())
            self.process.stdin.flush()

    def end_of_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def stop_reading(self) -> None:
        """Of what it prints."""
        self._stopped = True
        self._threads[0].join()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self) -> ProcessResult:
        code = self.process.wait(WITHIN_S)
        for thread in self._threads:
            thread.join(WITHIN_S if self.terminal < 0 else 0.2)
        return ProcessResult(code, self.out, self.err)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join(1)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        if self.terminal >= 0:
            os.close(self.terminal)


@contextmanager
def running_command(*args: str, env: dict[str, str] | None = None, terminal: bool = False) -> Iterator[CommandProcess]:
    process = CommandProcess(*args, env=env, terminal=terminal)
    try:
        yield process
    finally:
        process.close()


def run(*args: str, env: dict[str, str] | None = None, typed: str | None = None) -> ProcessResult:
    """From its beginning to its end."""
    with running_command(*args, env=env) as process:
        with suppress(BrokenPipeError):  # it has heard enough
            process.type(typed or "")
            process.end_of_input()
        return process.wait()


@contextmanager
def listening(channel: str, *args: str, env: dict[str, str] | None = None) -> Iterator[CommandProcess]:
    """A `broadloom listen` that has joined."""
    with running_command("listen", channel, "--events", *args, env=env) as process:
        process.wait_for_output("joined")
        yield process


class LocalMember:
    """A peer of the channel in this process, to see the command from outside."""

    def __init__(self, channel: str, **options: Any) -> None:
        self.channel = broadloom.sync.connect(channel, **options)
        self.links_up: list[LinkUp] = []
        self.links_down: list[LinkDown] = []
        self.channel.on_event(self._on_event)

    def _on_event(self, event: object) -> None:
        if isinstance(event, LinkUp):
            self.links_up.append(event)
        elif isinstance(event, LinkDown):
            self.links_down.append(event)

    def text(self) -> str:
        """The next message."""
        return self.channel.receive(timeout_s=WITHIN_S).text

    def wait_for_peer(self) -> None:
        wait_until(lambda: bool(self.channel.status().neighbors), "a neighbour")


@contextmanager
def member(channel: str, **options: object) -> Iterator[LocalMember]:
    joined = LocalMember(channel, **options)
    try:
        yield joined
    finally:
        joined.channel.leave()


def send_damaged(channel: broadloom.sync.Channel, name: str) -> None:
    """A file whose content is not what its hash says."""
    data = encode_file(name, b"the content")[:-1] + b"!"
    work = channel._channel._broadcast_large(data, PayloadKind.FILE, Priority.NORMAL, None)
    asyncio.run_coroutine_threadsafe(work, channel._loop).result(WITHIN_S)


def short_directory() -> Path:
    """The path of a socket must be short, and those that pytest makes are not."""
    return Path(tempfile.mkdtemp(prefix="broadloom-test-"))
