"""Parsing addresses, and finding the address that a peer advertises."""

import asyncio
import ipaddress
import socket

from broadloom.wire import Address
from broadloom.wire.xdr import HOST_BYTES_MAX, PORT_MAX

LOOPBACK = "127.0.0.1"
ADDRESSES_PER_HOST_MAX = 4
"""Addresses of one host name that are tried."""


def parse_address(text: str) -> Address:
    """Parse `10.0.0.5`, `alpha.example:4000`, `::1` or `[::1]:4000`. Port 0: the channel's port order is probed."""
    if not isinstance(text, str):
        raise TypeError(f"an address is text, as in 10.0.0.5 or alpha:4000, not {type(text).__name__}")
    host, port = text.strip(), 0
    if host.startswith("["):
        host, bracket, rest = host[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{text!r} is not an address; write IPv6 with a port as [::1]:4000")
        port = _port(text, rest[1:]) if rest else 0
    elif host.count(":") == 1:
        host, _, number = host.partition(":")
        port = _port(text, number)
    if not _is_host(host) or (text.strip().startswith("[") and ":" not in host):
        raise ValueError(f"{text!r} is not an address; write host, host:port or [IPv6]:port")
    return Address(LOOPBACK if host.lower() == "localhost" else host, port)


def _is_host(host: str) -> bool:
    """Whether this is the syntax of a host name or an address."""
    if ":" in host:
        try:
            return ipaddress.ip_address(host).version == 6
        except ValueError:
            return False
    has_invalid_character = any(character.isspace() or character in "\0/@[]" for character in host)
    return 0 < len(host.encode()) <= HOST_BYTES_MAX and not has_invalid_character


def _port(text: str, number: str) -> int:
    if not number.isascii() or not number.isdigit() or len(number) > 5 or not 1 <= int(number) <= PORT_MAX:
        raise ValueError(f"{text!r}: the port must be from 1 to {PORT_MAX}")
    return int(number)


async def resolve_host(host: str) -> list[str]:
    """The first few addresses of a host. Raises `OSError` or `ValueError` if it cannot be resolved."""
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
    """The address to bind: loopback stays loopback, everything else means every interface."""
    if is_loopback(host):
        return host
    return "::" if ":" in host else "0.0.0.0"


async def find_advertise_host(bootstrap: tuple[Address, ...]) -> str:
    """The local address that faces the first reachable bootstrap host; loopback only if all of them are local."""
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
                    probe.connect(address)  # UDP: looks up the route, sends nothing
                    host = str(probe.getsockname()[0]).partition("%")[0]
            except OSError:
                continue
            if not is_loopback(host):
                return host
            local = local or host
            break
    return local or LOOPBACK
