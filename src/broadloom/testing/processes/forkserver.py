"""The process that all processes of a lab are forked from, and that ends them.

A page has threads and an event loop, so it must not fork; and starting Python anew for each peer would take half a
second of a core. So one small process is started, loads all that a peer needs, and forks on order, in milliseconds. It
has neither threads nor a loop.

The rule: nobody is left behind. The nursery dies with the coordinator and the processes with the nursery, whatever
kills them: the kernel sees to it, and closed sockets besides.
"""

import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from broadloom.protocol import ChannelName
from broadloom.security import PeerCredentials
from broadloom.testing.chaos.processes import die_with_parent, freeze_heap

POLL_S = 0.5
"""How often those that have ended are seen off."""
REQUEST_BYTES_MAX = 4096
SEND_TIMEOUT_S = 5.0
"""A nursery that has not read its orders for so long is stuck."""
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "continue": signal.SIGCONT}


# -- the nursery's own side


def main(arguments: list[str]) -> None:
    """`arguments`: the number of our end of the socket, the coordinator's process, and `tape` if there are tapes."""
    end = socket.socket(fileno=int(arguments[0]))
    die_with_parent(int(arguments[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the coordinator, which will end us
    from broadloom.testing.processes import worker

    if "tape" in arguments[2:]:
        import broadloom.record  # noqa: F401  (loaded once, for all)
    freeze_heap()
    ForkServer(end, worker.main).serve()


class ForkServer:
    def __init__(self, sock: socket.socket, child_main: Callable[[socket.socket], None]) -> None:
        self._socket = sock
        self._child_main = child_main
        self._children: dict[int, int] = {}
        """Number to process id, of those that were not seen off yet."""

    def serve(self) -> None:
        self._report(ready=True)
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            while True:
                if selector.select(POLL_S):
                    data, ends, _, _ = socket.recv_fds(self._socket, REQUEST_BYTES_MAX, 1)
                    if not data:
                        break
                    self._handle(json.loads(data), ends)
                self._reap()
        for pid in self._children.values():
            os.kill(pid, signal.SIGKILL)
        os._exit(0)

    def _report(self, **content: Any) -> None:
        self._socket.sendall(json.dumps(content).encode())

    def _handle(self, request: dict[str, Any], sockets: list[int]) -> None:
        if request["do"] == "warm":
            # The channel's key is derived from its name, slowly and on purpose: once, and remembered by all.
            PeerCredentials.from_key(ChannelName.parse(request["channel"]), None)
            return
        number = int(request["number"])
        if request["do"] == "fork":
            self._fork(number, socket.socket(fileno=sockets[0]))
        elif number in self._children:
            # It is still ours, so its number means nobody else.
            os.kill(self._children[number], SIGNALS[request["do"]])

    def _fork(self, number: int, theirs: socket.socket) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            theirs.close()
            self._children[number] = pid
            self._report(forked=number, pid=pid)
            return
        code = 1
        try:
            die_with_parent(parent)
            self._socket.close()
            self._child_main(theirs)
            code = 0
        finally:
            os._exit(code)

    def _reap(self) -> None:
        for number, pid in list(self._children.items()):
            done, _ = os.waitpid(pid, os.WNOHANG)
            if done:
                del self._children[number]


# -- the coordinator's side


class ForkServerProcess:
    """The nursery, as the one sees it who started it."""

    def __init__(self, channel: str, *, tape: bool) -> None:
        self.control_socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arguments = [str(theirs.fileno()), str(os.getpid()), *(["tape"] if tape else [])]
        program = "import sys; from broadloom.testing.processes.forkserver import main; main(sys.argv[1:])"
        # In a session of its own: Ctrl-C at a terminal goes to all of its processes, and is the coordinator's business.
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self.control_socket.setblocking(False)
        self._send({"do": "warm", "channel": channel}, [])

    def fork(self, number: int) -> socket.socket:
        """Our end of the new process's socket. That it is there, is told later."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._send({"do": "fork", "number": number}, [theirs.fileno()])
        return ours

    def signal(self, number: int, action: str) -> None:
        self._send({"do": action, "number": number}, [])

    def _send(self, request: dict[str, Any], sockets: list[int]) -> None:
        data = json.dumps(request).encode()
        try:
            socket.send_fds(self.control_socket, [data], sockets)
        except BlockingIOError:
            select.select([], [self.control_socket], [], SEND_TIMEOUT_S)
            socket.send_fds(self.control_socket, [data], sockets)
        except OSError:
            pass  # it is gone, and all processes with it: that is noticed where their ends are read

    def receive(self) -> dict[str, Any] | None:
        """What it tells, if there is anything; an empty dictionary if it is gone."""
        try:
            data = self.control_socket.recv(REQUEST_BYTES_MAX)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        message: dict[str, Any] = json.loads(data) if data else {}
        return message

    def close(self) -> None:
        """It is gone when this returns; everybody that it has forked goes with it, the kernel sees to that."""
        self.control_socket.close()
        self._process.kill()
        self._process.wait()
