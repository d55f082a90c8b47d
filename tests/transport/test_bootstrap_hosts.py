"""The list of bootstrap hosts, given and from a file that changes while the program runs."""

import logging
from pathlib import Path

import pytest

import broadloom
from broadloom.transport import BootstrapHosts
from broadloom.transport.limits import Limits, TcpTuning
from broadloom.wire import Address
from tests.channel.joined import receive_texts, unique_name
from tests.support import eventually
from tests.transport.connections import free_port

QUICK = TcpTuning(discovery_retry_s=0.1, limits=Limits(bootstrap_check_s=0.05))


def test_file_adds_hosts_to_those_given(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# our machines\nalpha\n\n10.0.0.5:4000  # the first one\nbeta\nalpha\n")
    hosts = BootstrapHosts(["beta", "gamma"], file)
    alpha, beta, gamma, with_port = (
        Address("alpha", 0),
        Address("beta", 0),
        Address("gamma", 0),
        Address("10.0.0.5", 4000),
    )
    assert list(hosts.addresses) == [beta, gamma, alpha, with_port]
    file.write_text("delta")
    hosts.reload()
    assert list(hosts.addresses) == [beta, gamma, Address("delta", 0)]
    hosts.replace([])
    assert list(hosts.addresses) == [Address("delta", 0)]


def test_without_any_host_it_is_this_machine(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("")
    assert BootstrapHosts((), file).addresses == BootstrapHosts().addresses == (Address("127.0.0.1", 0),)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"alpha\na b\n", r"hosts, line 2: 'a b' is not an address"),
        (b"alpha:99999", r"line 1: .*the port must be from 1"),
        (b"\xff\xfe", "not a text file"),
        (None, "cannot read the bootstrap file .*: No such file"),
        ("\n".join(f"host-{number}" for number in range(300)).encode(), "has 300 hosts: use at most 256"),
    ],
)
def test_unusable_file_is_an_error_at_first_and_a_warning_later(
    content: bytes | None, message: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "hosts"
    file.write_text("alpha")
    running = BootstrapHosts((), file)
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        BootstrapHosts((), file)
    with pytest.raises(ValueError, match=message):
        broadloom.connect("chess/club-42", bootstrap_file=file)
    with caplog.at_level(logging.WARNING):
        running.reload()
        running.reload()
    assert len(caplog.records) == 1
    assert running.addresses == (Address("alpha", 0),)


async def test_channels_on_hosts_added_to_the_file_merge(tmp_path: Path) -> None:
    """Two channels of one name, each with its own bootstrap host."""
    name, ports, file = unique_name(), [free_port(), free_port()], tmp_path / "hosts"
    file.write_text(f"127.0.0.1:{ports[0]}\n")
    async with (
        broadloom.connect(name, bootstrap_file=file, port=ports[0], settings=QUICK) as first,
        broadloom.connect(name, bootstrap=[f"127.0.0.1:{ports[1]}"], port=ports[1], settings=QUICK) as second,
    ):
        assert not first.status().neighbors
        file.write_text(f"127.0.0.1:{ports[0]}\n127.0.0.1:{ports[1]}\n")
        await eventually(lambda: first.status().neighbors)
        await first.broadcast_text("hello")
        assert await receive_texts(second, 1) == ["hello"]


async def test_hosts_can_be_changed_while_the_channel_is_joined() -> None:
    name, ports = unique_name(), [free_port(), free_port()]
    async with (
        broadloom.connect(name, bootstrap=[f"127.0.0.1:{ports[0]}"], port=ports[0], settings=QUICK) as first,
        broadloom.connect(name, bootstrap=[f"127.0.0.1:{ports[1]}"], port=ports[1], settings=QUICK) as second,
    ):
        with pytest.raises(ValueError, match="not an address"):
            first.set_bootstrap(["a b"])
        with pytest.raises(TypeError, match="a list of addresses"):
            first.set_bootstrap("alpha")
        first.set_bootstrap([f"127.0.0.1:{ports[1]}"])
        await eventually(lambda: second.status().neighbors)
