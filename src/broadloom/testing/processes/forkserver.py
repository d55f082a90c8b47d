"""The process from which all workers are forked.

A program with threads or an event loop must not fork, and a fresh interpreter per peer costs half a second of CPU. So
one small process without either imports everything that a peer needs, then forks workers in milliseconds; the
imported modules stay shared between them.

Why not the forkserver of `multiprocessing`:

- It imports the caller's `__main__` in every child, so a script without a `__name__` guard would start itself again.
- It is one per program, shared with the application under test, and outlives the cluster.
- It signals by process id, which may belong to another process by then, and reports no CPU time. Here the forkserver,
  the only one to reap its children, sends the signals.

No process is left behind: workers die with the forkserver and the forkserver with the coordinator, even on SIGKILL and
even if stopped (PR_SET_PDEATHSIG, hence Linux only).
"""

import ctypes
import gc
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from broadloom.protocol import ChannelName
from broadloom.security import PeerCredentials
from broadloom.testing.processes.control_protocol import encode_line

PRELOAD: list[str] = []
"""Names of further modules to import before forking: large dependencies, or patches of the application under test."""
REQUEST_BYTES_MAX = 4096
SEND_TIMEOUT_S = 5.0
SIGNALS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP, "resume": signal.SIGCONT}
_PR_SET_PDEATHSIG = 1
_CLONE_NEWNET = 0x40000000


def unsupported_reason() -> str | None:
    """Why this machine cannot run workers, or None if it can."""
    return None if sys.platform == "linux" else "worker processes need Linux, where they end with their parent"


def die_with_parent(parent: int) -> None:
    """Make the kernel kill this process when its parent dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


# -- inside the forkserver process


def main(arguments: list[str]) -> None:
    """Arguments: number of the control socket, process id of the coordinator, worker class, modules to preload."""
    control_socket = socket.socket(fileno=int(arguments[0]))
    die_with_parent(int(arguments[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the coordinator, which closes the forkserver
    for name in arguments[3:]:
        import_module(name)
    module_name, _, class_name = arguments[2].partition(":")
    run_worker: Callable[[socket.socket], None] = getattr(import_module(module_name), class_name).run
    gc.collect()
    gc.freeze()  # a worker's garbage collector must not write to, and so copy, the shared pages
    ForkServer(control_socket, run_worker).serve()


class ForkServer:
    def __init__(self, control_socket: socket.socket, run_worker: Callable[[socket.socket], None]) -> None:
        self._socket = control_socket
        self._run_worker = run_worker
        self._pids: dict[int, int] = {}
        """Worker number to process id, for workers not reaped yet."""

    def serve(self) -> None:
        wakeup_reader, wakeup_writer = socket.socketpair()
        wakeup_reader.setblocking(False)
        wakeup_writer.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup_writer.fileno(), warn_on_full_buffer=False)
        self._report(ready=True)
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(wakeup_reader, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select()]
                if wakeup_reader in ready:
                    with suppress(BlockingIOError):
                        wakeup_reader.recv(REQUEST_BYTES_MAX)
                    self._reap()
                if self._socket in ready:
                    data, sockets, _, _ = socket.recv_fds(self._socket, REQUEST_BYTES_MAX, 1)
                    if not data:
                        break
                    self._handle(json.loads(data), sockets)
        for pid in self._pids.values():
            os.kill(pid, signal.SIGKILL)
        os._exit(0)

    def _report(self, **content: Any) -> None:
        self._socket.sendall(json.dumps(content).encode())

    def _handle(self, request: dict[str, Any], sockets: list[int]) -> None:
        if request["do"] == "derive_key":
            # Deriving a key from a channel name is slow on purpose. Workers inherit the cached result.
            PeerCredentials.from_key(ChannelName.parse(request["channel"]), None)
        elif request["do"] == "fork":
            self._fork(request["number"], socket.socket(fileno=sockets[0]), request["namespace_pid"])
        elif request["number"] in self._pids:
            os.kill(self._pids[request["number"]], SIGNALS[request["do"]])

    def _fork(self, number: int, worker_socket: socket.socket, namespace_pid: int) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            worker_socket.close()
            self._pids[number] = pid
            self._report(forked=number, pid=pid)
            return
        code = 1
        try:
            die_with_parent(parent)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._socket.close()
            if namespace_pid:
                _enter_network_namespace(namespace_pid)
            self._run_worker(worker_socket)
            code = 0
        except BaseException:
            with suppress(OSError):
                worker_socket.sendall(encode_line({"report": "error", "text": traceback.format_exc()}))
        finally:
            os._exit(code)

    def _reap(self) -> None:
        for number, pid in list(self._pids.items()):
            reaped, status, used = os.wait4(pid, os.WNOHANG)
            if reaped:
                del self._pids[number]
                cpu_s = used.ru_utime + used.ru_stime
                self._report(exited=number, code=os.waitstatus_to_exitcode(status), cpu_s=cpu_s)


def _enter_network_namespace(pid: int) -> None:
    with Path(f"/proc/{pid}/ns/net").open() as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "cannot enter a network namespace")


# -- on the coordinator's side


class ForkServerProcess:
    """The forkserver as its coordinator sees it. No method blocks for long."""

    def __init__(self, worker: str, *, preload: list[str]) -> None:
        self.control_socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = "import sys; from broadloom.testing.processes.forkserver import main; main(sys.argv[1:])"
        arguments = [str(theirs.fileno()), str(os.getpid()), worker, *PRELOAD, *preload]
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C at a terminal reaches the coordinator only
        )
        theirs.close()
        self.control_socket.setblocking(False)

    def derive_key(self, channel: str) -> None:
        self._send({"do": "derive_key", "channel": channel})

    def fork(self, number: int, namespace_pid: int = 0) -> socket.socket:
        """Request a worker and return the coordinator's end of its socket. The process id is reported later."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._send({"do": "fork", "number": number, "namespace_pid": namespace_pid}, [theirs.fileno()])
        return ours

    def signal(self, number: int, action: str) -> None:
        """Send one of `SIGNALS` to a worker."""
        self._send({"do": action, "number": number})

    def _send(self, request: dict[str, Any], sockets: list[int] | None = None) -> None:
        data = json.dumps(request).encode()
        try:
            socket.send_fds(self.control_socket, [data], sockets or [])
        except BlockingIOError:
            select.select([], [self.control_socket], [], SEND_TIMEOUT_S)
            socket.send_fds(self.control_socket, [data], sockets or [])
        except OSError:
            pass  # the forkserver is gone, and all workers with it: their closed sockets show it

    def receive(self) -> dict[str, Any] | None:
        """Return the next report: None if there is none yet, an empty dictionary if the forkserver is gone."""
        try:
            data = self.control_socket.recv(REQUEST_BYTES_MAX)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        message: dict[str, Any] = json.loads(data) if data else {}
        return message

    def close(self) -> None:
        """Kill the forkserver, and with it all workers."""
        self.control_socket.close()
        self._process.kill()
        self._process.wait()
