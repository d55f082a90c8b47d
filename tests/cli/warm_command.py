"""Starts commands by forking a process that has imported the command line, which takes longer than most commands.

A forked command is a process as any other: it has its own pipes or terminal, environment, directory and signals, and
ends as Python does. What the script `broadloom` adds is tested where tests start it themselves (`harness.COMMAND`).

Run as a program, this module is the process that forks. It gets requests over a socket (arguments, environment and
directory, and the files of standard input, output and error), and replies with process ids and exit statuses; each
message is a line of JSON.
"""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

READ_BYTES = 1 << 16


class WarmCommand:
    """As `subprocess.Popen`, with pipes where no file is given."""

    def __init__(self, args: list[str], *, stdin: int = -1, stdout: int = -1, env: dict[str, str]) -> None:
        pipes = [os.pipe() if stdin < 0 else None, os.pipe() if stdout < 0 else None, os.pipe()]
        theirs = [
            pipes[0][0] if pipes[0] is not None else stdin,
            pipes[1][1] if pipes[1] is not None else stdout,
            pipes[2][1],  # type: ignore[index]
        ]
        self.args = args
        self.stdin: BinaryIO | None = os.fdopen(pipes[0][1], "wb") if pipes[0] is not None else None
        self.stdout: BinaryIO | None = os.fdopen(pipes[1][0], "rb") if pipes[1] is not None else None
        self.stderr: BinaryIO | None = os.fdopen(pipes[2][0], "rb")  # type: ignore[index]
        self.returncode: int | None = None
        self._server = _server()
        self.pid = self._server.start({"args": args, "env": env, "folder": str(Path.cwd())}, theirs)
        for pipe, file in zip(pipes, theirs, strict=True):
            if pipe is not None:
                os.close(file)

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.exit_code(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self._server.wait_for_reply()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Server:
    """The test's side of the process that forks."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
            )
        self._unread = b""
        self._started: list[int] = []
        self._exit_codes: dict[int, int] = {}
        atexit.register(self.close)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()

    def start(self, request: dict[str, Any], files: list[int]) -> int:
        data = json.dumps(request).encode() + b"\n"
        sent = socket.send_fds(self._socket, [data], files)
        self._socket.sendall(data[sent:])
        while not self._started:
            self._receive()
        return self._started.pop()

    def exit_code(self, pid: int) -> int | None:
        while select.select([self._socket], [], [], 0)[0]:
            self._receive()
        return self._exit_codes.pop(pid, None)

    def wait_for_reply(self) -> None:
        select.select([self._socket], [], [], 0.1)

    def _receive(self) -> None:
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise RuntimeError("the process that forks commands has ended")
        *lines, self._unread = (self._unread + data).split(b"\n")
        for reply in map(json.loads, lines):
            if "started" in reply:
                self._started.append(reply["started"])
            else:
                self._exit_codes[reply["exited"]] = reply["code"]


@cache
def _server() -> _Server:
    return _Server()


def serve(control: socket.socket) -> None:
    """Fork a command for each request, until the tests end. Each command returns from here too."""
    import broadloom.channel
    import broadloom.record
    import broadloom.security  # noqa: F401
    from broadloom.__main__ import main
    from broadloom.cli import group, join, keys, listen, members, record, send, status  # noqa: F401

    wake, woken = socket.socketpair()
    wake.setblocking(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            woken.recv(READ_BYTES)
            _report_exits(control)
        if control in ready:
            data, files, _, _ = socket.recv_fds(control, READ_BYTES, 3)
            if not data:
                return
            while not data.endswith(b"\n"):
                data += control.recv(READ_BYTES)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                for each in (control, wake, woken):
                    each.close()
                _become(json.loads(data), files)
                main()
                return
            for file in files:
                os.close(file)
            _reply(control, started=pid)


def _report_exits(control: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _reply(control, exited=pid, code=os.waitstatus_to_exitcode(status))


def _reply(control: socket.socket, **content: int) -> None:
    control.sendall(json.dumps(content).encode() + b"\n")


def _become(request: dict[str, Any], files: list[int]) -> None:
    """Everything that a new process has of its own."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["folder"])
    sys.argv = ["broadloom", *request["args"]]
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", 1 if os.isatty(1) else -1, "utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
