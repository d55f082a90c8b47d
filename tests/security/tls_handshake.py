"""TLS handshakes in memory, and their result at both ends."""

import ssl
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from broadloom.protocol import ChannelName
from broadloom.protocol.identity import CredentialError, Identity, Role
from broadloom.security import Authority, PeerCredentials, Ticket, reject_reason_for
from broadloom.security.certificates import Clock
from broadloom.wire.exchange_messages import RejectReason

CLUB = ChannelName.parse("chess/club-42")
OTHER = ChannelName.parse("chess/club-43")

TODAY = datetime.now(UTC).replace(microsecond=0)
"""OpenSSL only uses the real clock."""
DAY = timedelta(days=1)


def clock_at(moment: datetime) -> Clock:
    return lambda: moment


def make_ticket(owner: Authority, member: str = "ada", role: Role = Role.PRODUCER, *, days: float = 7) -> Ticket:
    return owner.issue_ticket(member, role, TODAY + days * DAY, now=clock_at(TODAY))


def make_expired_ticket(owner: Authority) -> Ticket:
    return owner.issue_ticket("ada", Role.PRODUCER, TODAY - DAY, now=clock_at(TODAY - 3 * DAY))


class HandshakeResult(NamedTuple):
    """The result of a handshake at one end."""

    identity: Identity | None
    reason: RejectReason | None


class Contexts(NamedTuple):
    """TLS contexts of a client that is not a peer."""

    client_context: ssl.SSLContext
    server_context: ssl.SSLContext
    server_name: str


class _TlsEnd:
    def __init__(self, tls: ssl.SSLObject, credentials: PeerCredentials | Contexts, *, is_initiator: bool) -> None:
        self.tls, self.credentials, self.is_initiator = tls, credentials, is_initiator
        self.handshake_done = False
        self.result: HandshakeResult | None = None

    def advance(self) -> None:
        if self.result is not None:
            return
        try:
            if not self.handshake_done:
                self.tls.do_handshake()
                self.handshake_done = True
            self.tls.read(1)
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as problem:
            self.result = HandshakeResult(None, reject_reason_for(problem, is_initiator=self.is_initiator))

    def final_result(self) -> HandshakeResult:
        if self.result is not None:
            return self.result
        assert self.handshake_done, "the handshake is stuck"
        shown = self.tls.getpeercert(binary_form=True)
        assert shown is not None
        assert self.tls.version() == "TLSv1.3"
        if isinstance(self.credentials, Contexts):
            return HandshakeResult(None, None)
        try:
            return HandshakeResult(self.credentials.identify(shown), None)
        except CredentialError as rejected:
            return HandshakeResult(None, rejected.reason)


def handshake(
    initiator: PeerCredentials | Contexts, responder: PeerCredentials | Contexts
) -> tuple[HandshakeResult, HandshakeResult]:
    """The results of initiator and responder."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = responder.server_context.wrap_bio(there, back, server_side=True)
    client = initiator.client_context.wrap_bio(back, there, server_hostname=initiator.server_name)
    ends = _TlsEnd(client, initiator, is_initiator=True), _TlsEnd(server, responder, is_initiator=False)
    for _ in range(4):
        for end in ends:
            end.advance()
    return ends[0].final_result(), ends[1].final_result()


def responder_tls_error(member: PeerCredentials, sent: bytes) -> ssl.SSLError:
    """The error that these bytes cause."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    return _handshake_error(member.server_context.wrap_bio(incoming, outgoing, server_side=True), incoming, sent)


def initiator_tls_error(member: PeerCredentials, sent: bytes) -> ssl.SSLError:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = member.client_context.wrap_bio(incoming, outgoing, server_hostname=member.server_name)
    return _handshake_error(tls, incoming, sent)


def _handshake_error(tls: ssl.SSLObject, incoming: ssl.MemoryBIO, sent: bytes) -> ssl.SSLError:
    incoming.write(sent)
    incoming.write_eof()
    try:
        tls.do_handshake()
    except ssl.SSLError as problem:
        return problem
    raise AssertionError("the handshake succeeded")
