"""Other programs, and former members, on the ports where a newcomer looks for the channel."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

import pytest

import broadloom
from broadloom.protocol import ChannelName
from broadloom.protocol.channel_name import PortOrder
from broadloom.protocol.events import Rejected
from broadloom.protocol.identity import Role
from broadloom.security import Authority, PeerCredentials, Ticket
from broadloom.transport.limits import Limits, TcpTuning
from tests.attack.harness import unique_name
from tests.support import eventually

SETTINGS = TcpTuning(discovery_ports=3, discovery_retry_s=0.2, limits=Limits(credential_check_s=0.1))
GREETINGS = {"an SSH server": b"SSH-2.0-OpenSSH_9.6\r\n", "a program that sends '220 ready'": b"220 ready\r\n"}


def free_first_port() -> tuple[str, int]:
    """A channel, and the first port of its order."""
    while True:
        name = unique_name()
        port = PortOrder(ChannelName.parse(name).id)[0]
        with suppress(OSError), socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
            return name, port


@asynccontextmanager
async def foreign_server(
    port: int, greeting: bytes = b"", protocol: str = "", host: str = "127.0.0.1"
) -> AsyncIterator[None]:
    """With a protocol, a TLS server with a certificate of its own."""
    context: ssl.SSLContext | None = None
    if protocol:
        context = PeerCredentials.from_key(ChannelName.parse("web/site"), "its own key").server_context
        context.set_alpn_protocols([protocol])
        context.sni_callback = None
        context.verify_mode = ssl.CERT_NONE

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            writer.write(greeting)
            await reader.read()
        writer.close()

    server = await asyncio.start_server(greet, host, port, ssl=context)
    try:
        yield
    finally:
        server.close()


async def test_foreign_tls_server_on_the_first_port_does_not_stop_the_first_peer() -> None:
    name, port = free_first_port()
    async with (
        foreign_server(port, protocol="http/1.1"),
        broadloom.connect(name, key="a key", settings=SETTINGS, timeout_s=10) as first,
        broadloom.connect(name, key="a key", settings=SETTINGS, timeout_s=10) as second,
    ):
        await eventually(lambda: first.status().neighbors and second.status().neighbors)


@pytest.mark.parametrize(
    ("found", "tls"), [("another TLS server", True), *((found, tls) for found in GREETINGS for tls in (False, True))]
)
async def test_error_names_the_program_at_an_address_with_a_port(found: str, tls: bool) -> None:
    name, port = free_first_port()
    async with foreign_server(port, GREETINGS.get(found, b""), "" if found in GREETINGS else "http/1.1"):
        with pytest.raises(broadloom.RejectedError, match=f"127.0.0.1:{port}: is {found}, not a Broadloom peer"):
            await broadloom.connect(name, bootstrap=[f"127.0.0.1:{port}"], tls=tls, settings=SETTINGS, timeout_s=10)


async def test_error_after_the_timeout_names_programs_on_the_ports_of_the_channel() -> None:
    """The newcomer is not on a bootstrap host, so it waits for a member."""
    name, port = free_first_port()
    options = broadloom.ConnectOptions(
        bootstrap=["127.0.0.2"], advertise_host="127.0.0.1", settings=SETTINGS, timeout_s=1
    )
    async with foreign_server(port, GREETINGS["an SSH server"], host="127.0.0.2"):
        with pytest.raises(broadloom.ConnectError, match=rf"127\.0\.0\.2:{port} is an SSH server"):
            await broadloom.connect(name, options=options)


def ticket_for_a_moment(owner: Authority) -> Ticket:
    return owner.issue_ticket("eve", Role.PRODUCER, datetime.now(UTC) + timedelta(seconds=2))


def ticket_for_a_day(owner: Authority) -> Ticket:
    return owner.issue_ticket("ada", Role.PRODUCER, datetime.now(UTC) + timedelta(days=1))


async def test_expired_peer_on_a_bootstrap_host_does_not_keep_newcomers_out() -> None:
    owner, name = Authority.generate(), unique_name()
    ticket = ticket_for_a_moment(owner)
    async with broadloom.connect(name, ticket=ticket, settings=SETTINGS) as eve:
        await eventually(lambda: ticket.is_expired(datetime.now(UTC)))
        async with (
            broadloom.connect(name, ticket=ticket_for_a_day(owner), settings=SETTINGS, timeout_s=10) as ada,
            broadloom.connect(name, ticket=ticket_for_a_day(owner), settings=SETTINGS, timeout_s=10) as bob,
        ):
            await eventually(lambda: ada.status().neighbors and bob.status().neighbors)
            assert not eve.status().neighbors


async def test_member_whose_only_neighbor_expires_is_not_rejected_itself() -> None:
    owner, name = Authority.generate(), unique_name()
    rejected: dict[str, list[Rejected]] = {"ada": [], "eve": []}
    async with (
        broadloom.connect(name, ticket=ticket_for_a_day(owner), settings=SETTINGS) as ada,
        broadloom.connect(name, ticket=ticket_for_a_moment(owner), settings=SETTINGS) as eve,
    ):
        for channel, events in ((ada, rejected["ada"]), (eve, rejected["eve"])):

            def on_event(event: object, events: list[Rejected] = events) -> None:
                if isinstance(event, Rejected):
                    events.append(event)

            channel.on_event(on_event)
        failures = ada.status().counters["rejected_expired"]
        await eventually(lambda: rejected["eve"], "the event of the expired peer")
        await eventually(lambda: ada.status().counters["rejected_expired"] > failures + 2, "dials of the expired peer")
        assert not rejected["ada"]
        assert not ada.status().neighbors


def take_all_ports(taken: ExitStack) -> str:
    """A channel whose ports are all ours: one that another program has at this moment may become free in the next."""
    while True:
        name = unique_name()
        order = PortOrder(ChannelName.parse(name).id)
        with ExitStack() as attempt, suppress(OSError):
            for index in range(SETTINGS.discovery_ports):
                listener = attempt.enter_context(socket.socket())
                listener.bind(("127.0.0.1", order[index]))
                listener.listen()
            taken.push(attempt.pop_all())
            return name


async def test_first_peer_says_that_all_ports_are_taken() -> None:
    with ExitStack() as taken:
        name = take_all_ports(taken)
        with pytest.raises(broadloom.ConnectError, match="the 3 ports that peers search are taken"):
            await broadloom.connect(name, settings=SETTINGS, timeout_s=2)
