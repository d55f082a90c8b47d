"""Addresses as people write them, and where a peer of this machine can be reached."""

import asyncio
import ipaddress
import socket

from broadloom.wire import Address
from broadloom.wire.xdr import HOST_BYTES_MAX, PORT_MAX

LOOPBACK = "127.0.0.1"
ADDRESSES_PER_HOST_MAX = 4
"""Of one host name."""


def parse_address(text: str) -> Address:
    """`10.0.0.5`, `alpha.example:4000`, `::1`, `[::1]:4000`. Without a port, the channel's ports are searched."""
    host, port = text.strip(), 0
    if host.startswith("["):
        host, bracket, rest = host[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{text!r} is no address; IPv6 with a port is written [::1]:4000")
        port = _port(text, rest[1:]) if rest else 0
    elif host.count(":") == 1:
        host, _, number = host.partition(":")
        port = _port(text, number)
    if not _is_host(host) or (text.strip().startswith("[") and ":" not in host):
        raise ValueError(f"{text!r} is no address; write a host, or host:port, or [IPv6]:port")
    return Address(LOOPBACK if host.lower() == "localhost" else host, port)


def _is_host(host: str) -> bool:
    """Whether it could be a name or an address; whether it is one, only asking for it can tell."""
    if ":" in host:
        try:
            return ipaddress.ip_address(host).version == 6
        except ValueError:
            return False
    is_odd = any(sign.isspace() or sign in "\0/@[]" for sign in host)
    return 0 < len(host.encode()) <= HOST_BYTES_MAX and not is_odd


def _port(text: str, number: str) -> int:
    if not number.isascii() or not number.isdigit() or len(number) > 5 or not 1 <= int(number) <= PORT_MAX:
        raise ValueError(f"{text!r}: a port is a number from 1 to {PORT_MAX}")
    return int(number)


async def resolve_host(host: str) -> list[str]:
    """What a host name stands for, at most a few; an address stands for itself. OSError or ValueError if nothing."""
    try:
        return [str(ipaddress.ip_address(host))]
    except ValueError:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found[:ADDRESSES_PER_HOST_MAX]]


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind_host(host: str) -> str:
    """Where to listen so that others reach us at this host: on loopback only there, else on every interface."""
    if is_loopback(host):
        return host
    return "::" if ":" in host else "0.0.0.0"


async def find_advertise_host(bootstrap: tuple[Address, ...]) -> str:
    """The address from which this machine would talk to the first portal that it has a way to. If some portals are
    on this machine and others are not, it is one that the others can reach as well."""
    loop = asyncio.get_running_loop()
    local = ""
    for bootstrap_host in bootstrap:
        try:
            found = await loop.getaddrinfo(bootstrap_host.host, bootstrap_host.port or 9, type=socket.SOCK_DGRAM)
        except (OSError, ValueError):
            continue
        for family, kind, protocol, _, address in found:
            try:
                with socket.socket(family, kind, protocol) as probe:
                    probe.connect(address)  # sends nothing: UDP only looks up the route
                    host = str(probe.getsockname()[0]).partition("%")[0]
            except OSError:
                continue
            if not is_loopback(host):
                return host
            local = local or host
            break
    return local or LOOPBACK
