"""Two network namespaces joined by a virtual cable: to their processes, two hosts.

Each namespace is held by a process that ends with the coordinator, so nothing is left of it. The addresses exist only
inside the two namespaces. Needs root, and the commands `ip` (iproute2), `unshare` and `nsenter` (util-linux).
"""

import shutil
import subprocess

HOST_ADDRESSES = ("10.213.77.1", "10.213.77.2")
_INTERFACES = ("broadloom0", "broadloom1")
COMMAND_TIMEOUT_S = 10.0


class NamespaceError(Exception):
    """Network namespaces are not available here. The message says why."""


class NetworkNamespaces:
    def __init__(self) -> None:
        for command in ("ip", "unshare", "nsenter"):
            if shutil.which(command) is None:
                raise NamespaceError(f"the command `{command}` is missing (packages iproute2 and util-linux)")
        self._holders: list[subprocess.Popen[str]] = []
        try:
            for _ in HOST_ADDRESSES:
                self._holders.append(self._hold_namespace())
            self._ip(0, f"link add {_INTERFACES[0]} type veth peer name {_INTERFACES[1]} netns {self.pids[1]}")
            for number, host in enumerate(HOST_ADDRESSES):
                self._ip(number, "link set lo up")
                self._ip(number, f"addr add {host}/24 dev {_INTERFACES[number]}")
                self._ip(number, f"link set {_INTERFACES[number]} up")
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """A process in each namespace; `WorkerPool.start_worker` takes it."""
        return [holder.pid for holder in self._holders]

    def disconnect(self) -> None:
        """Drop all packets between the two hosts."""
        self._ip(0, f"link set {_INTERFACES[0]} down")

    def reconnect(self) -> None:
        self._ip(0, f"link set {_INTERFACES[0]} up")

    def close(self) -> None:
        for holder in self._holders:
            with holder:
                holder.kill()

    @staticmethod
    def _hold_namespace() -> subprocess.Popen[str]:
        # `cat` ends when the pipe to it closes, even if the coordinator is killed.
        command = ["unshare", "--net", "sh", "-c", "echo ready; exec cat"]
        pipe = subprocess.PIPE
        holder = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
        assert holder.stdout is not None
        assert holder.stderr is not None
        if holder.stdout.readline() != "ready\n":
            with holder:
                raise NamespaceError(f"no network namespaces here: {holder.stderr.read().strip()}")
        return holder

    def _ip(self, number: int, command: str) -> None:
        inside = ["nsenter", f"--net=/proc/{self.pids[number]}/ns/net", "ip", *command.split()]
        done = subprocess.run(inside, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
        if done.returncode:
            raise NamespaceError(f"no network namespaces here: ip {command}: {done.stderr.strip()}")
