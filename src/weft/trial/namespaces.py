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

from weft.trial.orders import from_line, to_line
from weft.trial.processes import Process, end_all, fork

HOSTS = ("10.213.77.1", "10.213.77.2")
_CABLE = ("weft0", "weft1")
_CLONE_NEWNET = 0x40000000
ANSWER_S = 10.0


class NotPermitted(Exception):
    """No namespaces here; says why."""


class Hosts:
    """The two, seen from the coordinator."""

    def __init__(self) -> None:
        if shutil.which("ip") is None:
            raise NotPermitted("the command `ip` is missing (package iproute2)")
        self.keepers: list[Process] = []
        try:
            for number in range(len(HOSTS)):
                self.keepers.append(fork(number, _keep, self.keepers))
            for keeper in self.keepers:
                keeper.end.settimeout(ANSWER_S)
                self._answer(keeper)
            other = self.keepers[1].pid
            self._ip(0, f"link add {_CABLE[0]} type veth peer name {_CABLE[1]} netns {other}")
            for number, host in enumerate(HOSTS):
                self._ip(number, "link set lo up")
                self._ip(number, f"addr add {host}/24 dev {_CABLE[number]}")
                self._ip(number, f"link set {_CABLE[number]} up")
        except BaseException:
            self.close()
            raise

    def inside(self, number: int, main: Callable[[socket.socket], None]) -> Callable[[socket.socket], None]:
        """The same, but on this host."""
        pid = self.keepers[number].pid

        def moved(end: socket.socket) -> None:
            with Path(f"/proc/{pid}/ns/net").open() as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "cannot enter a network namespace")
            for keeper in self.keepers:
                keeper.end.close()
            main(end)

        return moved

    def pull_the_plug(self) -> None:
        """From now on nothing passes, and nobody is told."""
        self._ip(0, f"link set {_CABLE[0]} down")

    def plug_in(self) -> None:
        self._ip(0, f"link set {_CABLE[0]} up")

    def close(self) -> None:
        end_all(self.keepers)

    def _ip(self, number: int, command: str) -> None:
        keeper = self.keepers[number]
        keeper.end.sendall(to_line({"ip": command.split()}))
        self._answer(keeper)

    def _answer(self, keeper: Process) -> None:
        """Keepers say one short line for each order."""
        try:
            line = keeper.end.recv(4096)
        except TimeoutError:
            raise NotPermitted(f"no network namespace within {ANSWER_S:g} s") from None
        problem = from_line(line)["problem"] if line else "its process ended"
        if problem:
            raise NotPermitted(f"no network namespaces here: {problem}")


def _keep(end: socket.socket) -> None:
    """Make a namespace and run `ip` in it, until the coordinator goes."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        end.sendall(to_line({"problem": f"unshare: {os.strerror(ctypes.get_errno())}"}))
        return
    end.sendall(to_line({"problem": ""}))
    while line := end.recv(4096):
        command = ["ip", *from_line(line)["ip"]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S, check=False)
        problem = f"{' '.join(command)}: {done.stderr.strip()}" if done.returncode else ""
        end.sendall(to_line({"problem": problem}))
