"""Two ends of TLS in memory: what each makes of the other."""

import ssl
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from weft.fabric import ChannelName
from weft.fabric.seal import Identity, Rejected, Role
from weft.security import Authority, Membership, Ticket, refusal_of
from weft.security.certificates import Clock
from weft.wire.calls import Refusal

CLUB = ChannelName.parse("chess/club-42")
OTHER = ChannelName.parse("chess/club-43")

TODAY = datetime.now(UTC).replace(microsecond=0)
"""OpenSSL looks at the real clock and at no other."""
DAY = timedelta(days=1)


def at(moment: datetime) -> Clock:
    return lambda: moment


def a_ticket(owner: Authority, member: str = "ada", role: Role = Role.PRODUCER, *, days: float = 7) -> Ticket:
    return owner.issue_ticket(member, role, TODAY + days * DAY, now=at(TODAY))


def an_old_ticket(owner: Authority) -> Ticket:
    """It has ended yesterday."""
    return owner.issue_ticket("ada", Role.PRODUCER, TODAY - DAY, now=at(TODAY - 3 * DAY))


class Outcome(NamedTuple):
    """Of a meeting, for one of the two."""

    identity: Identity | None
    refusal: Refusal | None


class Contexts(NamedTuple):
    """What somebody else than a Membership comes with."""

    client_context: ssl.SSLContext
    server_context: ssl.SSLContext
    server_name: str


class _End:
    def __init__(self, tls: ssl.SSLObject, who: Membership | Contexts, *, dialled: bool) -> None:
        self.tls, self.who, self.dialled = tls, who, dialled
        self.shaken = False
        self.outcome: Outcome | None = None

    def go_on(self) -> None:
        if self.outcome is not None:
            return
        try:
            if not self.shaken:
                self.tls.do_handshake()
                self.shaken = True
            self.tls.read(1)
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as problem:
            self.outcome = Outcome(None, refusal_of(problem, dialled=self.dialled))

    def conclude(self) -> Outcome:
        if self.outcome is not None:
            return self.outcome
        assert self.shaken, "the handshake is stuck"
        shown = self.tls.getpeercert(binary_form=True)
        assert shown is not None
        assert self.tls.version() == "TLSv1.3"
        if isinstance(self.who, Contexts):
            return Outcome(None, None)
        try:
            return Outcome(self.who.identify(shown), None)
        except Rejected as rejected:
            return Outcome(None, rejected.refusal)


def meet(caller: Membership | Contexts, called: Membership | Contexts) -> tuple[Outcome, Outcome]:
    """The caller's and the other's."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = called.server_context.wrap_bio(there, back, server_side=True)
    client = caller.client_context.wrap_bio(back, there, server_hostname=caller.server_name)
    ends = _End(client, caller, dialled=True), _End(server, called, dialled=False)
    for _ in range(4):
        for end in ends:
            end.go_on()
    return ends[0].conclude(), ends[1].conclude()


def bytes_for_one_who_was_called(member: Membership, sent: bytes) -> ssl.SSLError:
    """What TLS says when somebody sends it this."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    return _fails(member.server_context.wrap_bio(incoming, outgoing, server_side=True), incoming, sent)


def bytes_for_a_caller(member: Membership, sent: bytes) -> ssl.SSLError:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = member.client_context.wrap_bio(incoming, outgoing, server_hostname=member.server_name)
    return _fails(tls, incoming, sent)


def _fails(tls: ssl.SSLObject, incoming: ssl.MemoryBIO, sent: bytes) -> ssl.SSLError:
    incoming.write(sent)
    incoming.write_eof()
    try:
        tls.do_handshake()
    except ssl.SSLError as problem:
        return problem
    raise AssertionError("a handshake with nobody")
