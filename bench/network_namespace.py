"""A network of its own for the whole run: then every byte on its loopback interface is ours, and so is every port.

Only root may do that. Without it the run goes on in the network of the machine, and other traffic on loopback counts.
"""

import ctypes
import fcntl
import os
import socket
import struct

CLONE_NEWNET = 0x4000_0000
SIOCGIFFLAGS = 0x8913
SIOCSIFFLAGS = 0x8914
IFF_UP = 0x1
INTERFACE = struct.Struct("16sH14x")
"""The head of the kernel's `struct ifreq`: a name, its flags, and room."""


def enter_network_namespace() -> bool:
    """Whether this process, and all that it starts from now on, has a loopback interface of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    shared = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        if libc.unshare(CLONE_NEWNET) != 0:
            return False
        try:
            _bring_up_loopback()
        except OSError:
            return bool(libc.setns(shared, CLONE_NEWNET) != 0)
        return True
    finally:
        os.close(shared)


def _bring_up_loopback() -> None:
    """A new network has one, but it is down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        reply = fcntl.ioctl(any_socket, SIOCGIFFLAGS, INTERFACE.pack(b"lo", 0))
        _, flags = INTERFACE.unpack(reply)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, INTERFACE.pack(b"lo", flags | IFF_UP))
