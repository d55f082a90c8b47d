"""Runs the `broadloom` command as a process with real sockets, at pipes or at a terminal."""

import os
import pty
import select
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import broadloom.sync
from broadloom.protocol.events import LinkDown, LinkUp
from broadloom.sync import bridge
from broadloom.wire.broadcast_frame import Priority
from broadloom.wire.file_payload import encode_file
from broadloom.wire.payload_kind import PayloadKind
from tests.cli.warm_command import WarmCommand
from tests.support import TIMEOUT_S, wait_until

COMMAND = Path(sys.executable).with_name("broadloom")
INTERRUPTED = 130


def new_channel() -> str:
    return f"test/{uuid4().hex}"


class ProcessResult(NamedTuple):
    code: int
    out: str
    err: str


class CommandProcess:
    """A running command. With `terminal`, standard input and output are a terminal."""

    def __init__(self, *args: str, env: dict[str, str] | None = None, terminal: bool = False) -> None:
        environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200", "TERM": "xterm", **(env or {})}
        self.terminal, inner = pty.openpty() if terminal else (-1, -1)
        self.process = WarmCommand([*args], stdin=inner, stdout=inner, env=environment)
        if terminal:
            os.close(inner)
        self._texts = {"out": b"", "err": b""}
        self._stopped = False
        assert self.process.stderr is not None
        out = self.terminal if self.process.stdout is None else self.process.stdout.fileno()
        self._threads = [self._read("out", out), self._read("err", self.process.stderr.fileno())]

    def _read(self, name: str, file: int) -> threading.Thread:
        def work() -> None:
            with suppress(OSError):  # reading a closed terminal fails
                while not (name == "out" and self._stopped):
                    if not select.select([file], [], [], 0.05)[0]:
                        continue
                    if not (data := os.read(file, 65536)):
                        return
                    self._texts[name] += data

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
        wanted = text.encode()
        wait_until(
            lambda: wanted in self._texts[where],
            lambda: f"output: {self.out!r}, errors: {self.err!r}; {text!r}",
            TIMEOUT_S,
        )

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
        self._stopped = True
        self._threads[0].join()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self) -> ProcessResult:
        code = self.process.wait(TIMEOUT_S)
        for thread in self._threads:
            thread.join(TIMEOUT_S if self.terminal < 0 else 0.2)
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
    """Run a command to its end."""
    with running_command(*args, env=env) as process:
        with suppress(BrokenPipeError):  # the command has exited
            process.type(typed or "")
            process.end_of_input()
        return process.wait()


@contextmanager
def listening(channel: str, *args: str, env: dict[str, str] | None = None) -> Iterator[CommandProcess]:
    """A `broadloom listen` process that has joined."""
    with running_command("listen", channel, "--events", *args, env=env) as process:
        process.wait_for_output("joined")
        yield process


class LocalMember:
    """A peer of the channel in the test process."""

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
        return self.channel.receive(timeout_s=TIMEOUT_S).text

    def wait_for_peer(self) -> None:
        wait_until(lambda: bool(self.channel.status().neighbors), "a neighbor")


@contextmanager
def member(channel: str, **options: object) -> Iterator[LocalMember]:
    joined = LocalMember(channel, **options)
    try:
        yield joined
    finally:
        joined.channel.leave()


def send_damaged(channel: broadloom.sync.Channel, name: str) -> None:
    """Broadcast a file whose content does not match its hash."""
    data = encode_file(name, b"the content")[:-1] + b"!"
    work = channel._wrapped._broadcast_large(data, PayloadKind.FILE, Priority.NORMAL, None)
    bridge.run(work)


def short_directory() -> Path:
    """Paths of sockets are limited to about 100 bytes; those of `tmp_path` are longer."""
    return Path(tempfile.mkdtemp(prefix="broadloom-test-"))
