"""Two network namespaces with one cable between them: two hosts, as far as their processes can see.

Each is made, and kept, by a process of its own, so that nothing is left of it when that process ends. The addresses are
of a private range and exist nowhere but in these two namespaces. Needs the rights of root, and the command `ip`.
"""

import ctypes
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

from broadloom.testing.chaos.processes import ForkedProcess, fork, kill_all
from broadloom.testing.processes.control_protocol import decode_line, encode_line

HOST_ADDRESSES = ("10.213.77.1", "10.213.77.2")
_VETH_NAMES = ("broadloom0", "broadloom1")
_CLONE_NEWNET = 0x40000000
REPLY_TIMEOUT_S = 10.0


class NamespaceError(Exception):
    """No namespaces here; says why."""


class NetworkNamespaces:
    """The two, seen from the coordinator."""

    def __init__(self) -> None:
        if shutil.which("ip") is None:
            raise NamespaceError("the command `ip` is missing (package iproute2)")
        self.holders: list[ForkedProcess] = []
        try:
            for number in range(len(HOST_ADDRESSES)):
                self.holders.append(fork(number, _hold_namespace, self.holders))
            for keeper in self.holders:
                keeper.control_socket.settimeout(REPLY_TIMEOUT_S)
                self._read_reply(keeper)
            other = self.holders[1].pid
            self._ip(0, f"link add {_VETH_NAMES[0]} type veth peer name {_VETH_NAMES[1]} netns {other}")
            for number, host in enumerate(HOST_ADDRESSES):
                self._ip(number, "link set lo up")
                self._ip(number, f"addr add {host}/24 dev {_VETH_NAMES[number]}")
                self._ip(number, f"link set {_VETH_NAMES[number]} up")
        except BaseException:
            self.close()
            raise

    def run_inside(self, number: int, main: Callable[[socket.socket], None]) -> Callable[[socket.socket], None]:
        """The same, but on this host."""
        pid = self.holders[number].pid

        def moved(end: socket.socket) -> None:
            with Path(f"/proc/{pid}/ns/net").open() as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "cannot enter a network namespace")
            for keeper in self.holders:
                keeper.control_socket.close()
            main(end)

        return moved

    def disconnect(self) -> None:
        """From now on nothing passes, and nobody is told."""
        self._ip(0, f"link set {_VETH_NAMES[0]} down")

    def reconnect(self) -> None:
        self._ip(0, f"link set {_VETH_NAMES[0]} up")

    def close(self) -> None:
        kill_all(self.holders)

    def _ip(self, number: int, command: str) -> None:
        holder = self.holders[number]
        holder.control_socket.sendall(encode_line({"ip": command.split()}))
        self._read_reply(holder)

    def _read_reply(self, holder: ForkedProcess) -> None:
        """Keepers say one short line for each order."""
        try:
            line = holder.control_socket.recv(4096)
        except TimeoutError:
            raise NamespaceError(f"no network namespace within {REPLY_TIMEOUT_S:g} s") from None
        problem = decode_line(line)["problem"] if line else "its process ended"
        if problem:
            raise NamespaceError(f"no network namespaces here: {problem}")


def _hold_namespace(sock: socket.socket) -> None:
    """Make a namespace and run `ip` in it, until the coordinator goes."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        sock.sendall(encode_line({"problem": f"unshare: {os.strerror(ctypes.get_errno())}"}))
        return
    sock.sendall(encode_line({"problem": ""}))
    while line := sock.recv(4096):
        command = ["ip", *decode_line(line)["ip"]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=REPLY_TIMEOUT_S, check=False)
        problem = f"{' '.join(command)}: {done.stderr.strip()}" if done.returncode else ""
        sock.sendall(encode_line({"problem": problem}))
