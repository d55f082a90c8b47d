"""Addresses as people write them."""

import asyncio
import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broadloom.transport import find_advertise_host, parse_address
from broadloom.transport.addresses import bind_host
from broadloom.transport.event_loop import run
from broadloom.wire import Address

PORTS = st.integers(1, 65535)
NAMES = st.from_regex(r"[a-z0-9]([a-z0-9_-]{0,20}[a-z0-9])?(\.[a-z0-9]{1,20}){0,3}", fullmatch=True)
IPV4 = st.ip_addresses(v=4).map(str)
IPV6 = st.ip_addresses(v=6).map(str)


@given(NAMES | IPV4 | IPV6, PORTS)
def test_an_address_reads_as_it_was_written(host: str, port: int) -> None:
    expected = Address("127.0.0.1" if host == "localhost" else host, port)
    assert parse_address(str(Address(host, port))) == expected
    assert parse_address(f"  {Address(host, port)}\n") == expected


@given(NAMES | IPV4 | IPV6)
def test_without_a_port_the_ports_of_the_channel_are_searched(host: str) -> None:
    assert parse_address(host) == Address("127.0.0.1" if host == "localhost" else host, 0)


@given(IPV6)
def test_brackets_may_stand_without_a_port(host: str) -> None:
    assert parse_address(f"[{host}]") == Address(host, 0)


@given(st.text(max_size=300))
def test_any_text_is_an_address_or_a_mistake_that_is_explained(text: str) -> None:
    try:
        address = parse_address(text)
    except ValueError as mistake:
        told = str(mistake)
    else:
        told = "a good one"
        assert parse_address(str(address) if address.port else address.host) == address
        assert 0 < len(address.host.encode()) <= 255
        if ":" in address.host:
            assert ipaddress.ip_address(address.host).version == 6
    assert any(part in told for part in ("a good one", "no address", "a port is"))


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
def test_mistakes_are_told(text: str) -> None:
    with pytest.raises(ValueError, match=r"no address|a port is a number from 1 to 65535"):
        parse_address(text)


def test_this_machine_has_a_name() -> None:
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
def test_loopback_is_listened_on_alone_and_all_else_on_every_interface(host: str, bound: str) -> None:
    assert bind_host(host) == bound


async def _find_advertise_host(*bootstrap: str) -> str:
    return await asyncio.wait_for(find_advertise_host(tuple(map(parse_address, bootstrap))), 10)


def test_own_host_is_where_the_portal_would_see_us() -> None:
    assert run(_find_advertise_host("127.0.0.1")) == "127.0.0.1"
    assert run(_find_advertise_host("::1")) == "::1"
    assert run(_find_advertise_host("[::1]:4000")) == "::1"
    assert run(_find_advertise_host("nobody.invalid", "::1")) == "::1"
    assert run(_find_advertise_host("nobody.invalid")) == "127.0.0.1"
    assert run(_find_advertise_host()) == "127.0.0.1"
