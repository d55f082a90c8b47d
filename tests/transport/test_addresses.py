"""Parsing addresses, and the address to bind and to advertise."""

import asyncio
import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broadloom.transport import find_advertise_host, parse_address
from broadloom.transport.addresses import bind_host
from broadloom.wire import Address

PORTS = st.integers(1, 65535)
NAMES = st.from_regex(r"[a-z0-9]([a-z0-9_-]{0,20}[a-z0-9])?(\.[a-z0-9]{1,20}){0,3}", fullmatch=True)
IPV4 = st.ip_addresses(v=4).map(str)
IPV6 = st.ip_addresses(v=6).map(str)


@given(NAMES | IPV4 | IPV6, PORTS)
def test_address_survives_formatting_and_parsing(host: str, port: int) -> None:
    expected = Address("127.0.0.1" if host == "localhost" else host, port)
    assert parse_address(str(Address(host, port))) == expected
    assert parse_address(f"  {Address(host, port)}\n") == expected


@given(NAMES | IPV4 | IPV6)
def test_address_without_port_has_port_zero(host: str) -> None:
    assert parse_address(host) == Address("127.0.0.1" if host == "localhost" else host, 0)


@given(IPV6)
def test_brackets_are_allowed_without_port(host: str) -> None:
    assert parse_address(f"[{host}]") == Address(host, 0)


@given(st.text(max_size=300))
def test_any_text_is_an_address_or_raises_value_error(text: str) -> None:
    try:
        address = parse_address(text)
    except ValueError as mistake:
        message = str(mistake)
    else:
        message = "a good one"
        assert parse_address(str(address) if address.port else address.host) == address
        assert 0 < len(address.host.encode()) <= 255
        if ":" in address.host:
            assert ipaddress.ip_address(address.host).version == 6
    assert any(part in message for part in ("a good one", "not an address", "the port must be"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ":4000",
        "host:",
        "host:0",
        "host:65536",
        "host:-1",
        "host:+80",
        "host:4e3",
        "host:٤",
        "host:" + "9" * 5000,
        "host name",
        "host\0",
        "a" * 256,
        "http://host:80",
        "http://host",
        "host/path",
        "user@host",
        "1:2:3",
        "::1:4000:zz",
        "[::1",
        "::1]",
        "[::1]4000",
        "[::1]:",
        "[]",
        "[]:4000",
        "[host]:4000",
        "[[::1]]:4000",
        "host:80:90",
    ],
)
def test_invalid_address_raises_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"not an address|the port must be from 1 to 65535"):
        parse_address(text)


def test_localhost_becomes_loopback_address() -> None:
    assert parse_address("localhost") == Address("127.0.0.1", 0)
    assert parse_address("LocalHost:4000") == Address("127.0.0.1", 4000)


@pytest.mark.parametrize(
    ("host", "bound"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.9", "127.0.0.9"),
        ("::1", "::1"),
        ("10.0.0.5", "0.0.0.0"),
        ("alpha.example", "0.0.0.0"),
        ("2001:db8::1", "::"),
    ],
)
def test_bind_host_is_loopback_or_every_interface(host: str, bound: str) -> None:
    assert bind_host(host) == bound


async def _find_advertise_host(*bootstrap: str) -> str:
    return await asyncio.wait_for(find_advertise_host(tuple(map(parse_address, bootstrap))), 10)


async def test_advertise_host_faces_first_reachable_bootstrap_host() -> None:
    assert await _find_advertise_host("127.0.0.1") == "127.0.0.1"
    assert await _find_advertise_host("::1") == "::1"
    assert await _find_advertise_host("[::1]:4000") == "::1"
    assert await _find_advertise_host("unknown.invalid", "::1") == "::1"
    assert await _find_advertise_host("unknown.invalid") == "127.0.0.1"
    assert await _find_advertise_host() == "127.0.0.1"
