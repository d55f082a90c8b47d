"""`ConnectOptions`: the parameters of `connect`, their defaults and their checks.

This is the only place that spells them. `broadloom.connect`, `broadloom.sync.connect` and everything else that joins a
channel takes them from here, at run time and for type checkers (`accepts_connect_options`).
"""

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

from broadloom.channel.arguments import check_inbox, check_positive_timeout
from broadloom.channel.inbox import Overflow
from broadloom.channel.outgoing import OutgoingFilter
from broadloom.protocol import ChannelSettings
from broadloom.protocol.runtime import ObserverFactory
from broadloom.security import RevocationList, SignedCard, Ticket
from broadloom.security.sealing import SealingPrivateKey
from broadloom.transport import parse_address
from broadloom.wire.fields import MEMBER_NAME_BYTES_MAX
from broadloom.wire.xdr import PORT_MAX

_TYPES: dict[str, tuple[type, ...]] = {
    "key": (str, bytes, type(None)),
    "tls": (bool,),
    "signed": (bool, type(None)),
    "name": (str,),
    "advertise_host": (str,),
    "port": (int,),
    "local_peers": (int,),
    "inbox_messages_max": (int,),
    "inbox_bytes_max": (int,),
    "timeout_s": (int, float),
    "settings": (ChannelSettings, type(None)),
}
LOCAL_PEERS_MAX = 16
"""More peers in one program would not add throughput."""


@dataclass(frozen=True, kw_only=True)
class ConnectOptions:
    """The options of `connect`. Values that cannot work raise `ValueError` or `TypeError`."""

    bootstrap: Sequence[str] = ()
    """Hosts to look for the channel: `10.0.0.5` or `alpha`, whose ports are probed in the channel's port order, or
    `host:port`. Default: this machine. The first peer of a channel must run on one of its bootstrap hosts."""
    bootstrap_file: "str | os.PathLike[str] | None" = None
    """File with further bootstrap hosts, one per line. It is read again while the program runs."""
    key: str | bytes | None = field(default=None, repr=False)
    """Key shared by all members (`broadloom key generate` creates one). Without key and ticket, the key is derived from
    the channel name, which only keeps out programs that do not know the name."""
    ticket: "str | os.PathLike[str] | Ticket | None" = field(default=None, repr=False)
    """Ticket issued by the channel's owner, with a name and a role: a path, the text of the file, or a `Ticket`."""
    revocation_list: "str | os.PathLike[str] | RevocationList | None" = None
    """The owner's list of revoked tickets. A file is read again whenever it changes."""
    card: "str | os.PathLike[str] | SignedCard | None" = None
    """The channel's card, signed by its owner: a path or a `SignedCard`. Members with tickets also get it over the
    channel. A newer one that arrives is kept beside the file."""
    tls: bool = True
    """False: no encryption and no authentication."""
    signed: bool | None = None
    """Sign every message and verify it at every hop. Always on with tickets; default without: off."""
    name: str = ""
    """Name of this program for the other members (`channel.members`). Anyone can choose any name: only tickets prove
    one."""
    advertise_host: str = ""
    """Address at which other peers reach this one. Default: the address of the interface that faces the bootstrap
    host."""
    port: int = 0
    """Port to listen on. 0: the first free one in the channel's port order."""
    local_peers: int = 1
    """Number of peers that this program runs. They act as one, with more links; for a well-connected machine."""
    overflow: "Overflow | str" = Overflow.DROP_OLDEST
    """What happens when the program does not read in time: see `Overflow`."""
    inbox_messages_max: int = 100_000
    """Maximum number of unread messages."""
    inbox_bytes_max: int = 64 << 20
    """Maximum size of all unread messages."""
    timeout_s: float = 30.0
    """`connect` raises `ConnectError` after this time."""
    tape: ObserverFactory | None = None
    """Records what this peer sees: a `broadloom.record.Tape`."""
    rules: OutgoingFilter | None = None
    """Every message that this program sends passes these rules first: `broadloom.rules.load("out.rules")`."""
    private_keys: "Sequence[str | os.PathLike[str] | SealingPrivateKey]" = field(default=(), repr=False)
    """Keys for messages that rules of other members encrypt: files from `broadloom rules key`."""
    settings: ChannelSettings | None = None
    """Timeouts, memory limits and the like: `ChannelSettings`, with profiles for other networks."""

    def __post_init__(self) -> None:
        for name, types in _TYPES.items():
            value = getattr(self, name)
            if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
                expected = " or ".join("None" if each is type(None) else each.__name__ for each in types)
                raise TypeError(f"{name} must be {expected}, not {type(value).__name__}")
        check_positive_timeout(self.timeout_s)
        if self.tape is not None and not hasattr(self.tape, "observer"):
            raise TypeError(f"tape must be a broadloom.record.Tape, not {type(self.tape).__name__}")
        if self.rules is not None and not hasattr(self.rules, "apply_nowait"):
            raise TypeError(f"rules must be broadloom.rules.load(…), not {type(self.rules).__name__}")
        if isinstance(self.private_keys, str | bytes | os.PathLike):
            raise TypeError(f"private_keys is a list of files: private_keys=[{self.private_keys!r}]")
        if isinstance(self.bootstrap, str):
            raise TypeError(f"bootstrap is a list of addresses: bootstrap=[{self.bootstrap!r}]")
        for address in self.bootstrap:
            parse_address(address)
        if sum([self.key is not None, self.ticket is not None, not self.tls]) > 1:
            raise ValueError("key, ticket and tls=False exclude each other")
        if self.signed and not self.tls:
            raise ValueError("signed=True requires a key or a ticket: a channel without TLS cannot be signed")
        if self.revocation_list is not None and self.ticket is None:
            raise ValueError("revocation_list works only with a ticket")
        if self.ticket is not None and self.signed is False:
            raise ValueError("signed=False is not possible with a ticket: roles are enforced by signatures")
        if not self.name.isprintable() or len(self.name.encode()) > MEMBER_NAME_BYTES_MAX:
            raise ValueError(f"name={self.name!r}: must be at most {MEMBER_NAME_BYTES_MAX} bytes of printable text")
        if self.name and self.ticket is not None:
            raise ValueError("name and ticket exclude each other: the ticket has the name")
        if not 1 <= self.local_peers <= LOCAL_PEERS_MAX:
            raise ValueError(f"local_peers={self.local_peers}: must be 1 to {LOCAL_PEERS_MAX}")
        if not 0 <= self.port <= PORT_MAX:
            raise ValueError(f"port={self.port}: must be 1 to {PORT_MAX}, or 0 to choose one")
        check_inbox(self.overflow, self.inbox_messages_max, self.inbox_bytes_max, prefix="inbox_")
        if self.advertise_host:
            _check_advertise_host(self.advertise_host)


def _check_advertise_host(host: str) -> None:
    address = parse_address(host)
    if address.port:
        raise ValueError(f"advertise_host={host!r}: pass the port separately, as port={address.port}")
    if address.host in ("0.0.0.0", "::"):
        raise ValueError(
            f"advertise_host={host!r}: peers cannot dial this; use an address of this machine, or leave it out"
        )


P = ParamSpec("P")
T_co = TypeVar("T_co", covariant=True)


class ConnectFunction(Protocol[P, T_co]):
    """A function that takes a channel name and either prepared options or the options one by one."""

    @overload
    def __call__(self, channel: str, /, *, options: ConnectOptions) -> T_co: ...
    @overload
    def __call__(self, channel: str, /, *args: P.args, **options: P.kwargs) -> T_co: ...


def _connect_function_type(
    _options: Callable[P, ConnectOptions],
) -> Callable[[Callable[[str, ConnectOptions], T_co]], ConnectFunction[P, T_co]]:
    def decorate(function: Callable[[str, ConnectOptions], T_co]) -> ConnectFunction[P, T_co]:
        def connect(channel: str, /, *, options: ConnectOptions | None = None, **given: Any) -> T_co:
            if options is not None and given:
                raise TypeError(f"pass options= or {', '.join(given)}=, not both")
            return function(channel, options or ConnectOptions(**given))

        own = inspect.signature(function)
        first = own.parameters["channel"].replace(kind=inspect.Parameter.POSITIONAL_ONLY)
        parameters = [first, *inspect.signature(ConnectOptions).parameters.values()]
        connect.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        connect.__name__, connect.__qualname__ = function.__name__, function.__qualname__
        connect.__module__, connect.__doc__ = function.__module__, function.__doc__
        return cast("ConnectFunction[P, T_co]", connect)

    return decorate


accepts_connect_options = _connect_function_type(ConnectOptions)
"""Decorator for `function(channel, options)`: callers pass the fields of `ConnectOptions` as keyword arguments, or
`options=`. Type checkers and editors see each of them."""
