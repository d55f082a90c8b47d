"""`broadloom card`, and the commands of `broadloom ticket` about revocation lists: what the owner of a channel signs,
and how it reaches the members."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from broadloom.cli.exit_codes import FAILURE, SUCCESS, UsageError, usage_errors
from broadloom.cli.formatting import escape_control_chars, format_count
from broadloom.cli.keys import AuthorityOption, RoleChoice, ticket
from broadloom.cli.options import ChannelArgument, JoinOptions, JsonOption, argument, command_group, option
from broadloom.cli.output import print_result
from broadloom.cli.runner import StopSignal, command, joined_channel, print_error
from broadloom.errors import InvalidKeyError, InvalidKeyFileError
from broadloom.protocol import ChannelName
from broadloom.protocol.owner.card import BURST_S, CardState, ChannelCard, Quota, SecurityLevel
from broadloom.security import Authority, RevocationList, SignedCard, Ticket
from broadloom.security.authority import is_for_channel

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

PEERS_TIMEOUT_S = 10.0
"""How long `publish` waits for another member, at most."""

card = command_group(
    "Create, show, check and publish the card of a channel: how members connect, and what they may send.\n\n"
    "Examples:\n\n"
    "- `broadloom card create --authority club.authority --channel chess/club-42 --out club.card`"
)

FileArgument = Annotated[Path, argument("The card.", "FILE")]
OwnerOption = Annotated[
    Path | None, option("Check that this authority, or the issuer of this ticket, signed it.", "FILE")
]


class LevelChoice(StrEnum):
    plain = "plain"
    tls = "tls"
    signed = "signed"
    tickets = "tickets"


@command("card create", card)
def create(
    authority: AuthorityOption,
    channel: Annotated[str, option("The channel.", "CHANNEL")],
    out: Annotated[
        Path, option("Output file. A card in it is replaced by one with a higher number.", "FILE", "--out", "-o")
    ],
    level: Annotated[LevelChoice, option("How members connect.")] = LevelChoice.tickets,
    degree: Annotated[int, option("Number of neighbors of each member.", "N")] = 4,
    bootstrap: Annotated[list[str] | None, option("Bootstrap host for members; repeatable.", "HOST[:PORT]")] = None,
    role: Annotated[RoleChoice, option("Role that the quota is for.")] = RoleChoice.producer,
    messages_per_s: Annotated[float | None, option("Quota: messages per second.", "N")] = None,
    bytes_per_s: Annotated[float | None, option("Quota: bytes per second.", "N")] = None,
    burst: Annotated[float, option("Quota: how much at once, as a time.", "SECONDS")] = BURST_S,
    message_bytes_max: Annotated[int | None, option("Quota: size of the largest message.", "N")] = None,
    requests_per_s: Annotated[float | None, option("Quota: direct requests per second.", "N")] = None,
    text: Annotated[str, option("Text for members.")] = "",
    json: JsonOption = False,
) -> None:
    """Create the card of a channel, or the next one.

    A quota is for one role. To set quotas for both, run the command twice: quotas of the other role in the file are
    kept.

    Examples:

    - `broadloom card create --authority club.authority --channel chess/club-42 --out club.card --messages-per-s 20`
    """
    issuer = Authority.load(authority)
    previous = _previous(out, issuer, channel)
    quotas = {name: each for name, each in previous.card.quotas.items() if name != role.value} if previous else {}
    with usage_errors():
        quota = Quota(messages_per_s, bytes_per_s, burst, message_bytes_max, requests_per_s)
        if quota.is_limited:
            quotas[role.value] = quota
        made = ChannelCard(
            channel,
            level=SecurityLevel(level.value),
            degree=degree,
            bootstrap=tuple(bootstrap or ()),
            quotas=quotas,
            text=text,
        )
    _sign(issuer, made, previous, out, json=json)


@command("card close", card)
def close(
    authority: AuthorityOption,
    file: FileArgument,
    text: Annotated[str, option("Text for members: why, and where to go.")] = "",
    json: JsonOption = False,
) -> None:
    """Replace a card by one that closes the channel.

    Publish it with `broadloom card publish`: all members leave, and programs that connect with this card get an error.

    Examples:

    - `broadloom card close --authority club.authority club.card --text "moved to chess/club-43"`
    """
    issuer = Authority.load(authority)
    previous = SignedCard.load(file)
    _check_owner(previous.owner, issuer.certificate, file)
    with usage_errors():
        closed = previous.card.closed(text)
    _sign(issuer, closed, previous, file, json=json)


@command("card show", card)
def show(file: FileArgument, json: JsonOption = False) -> None:
    """Show a card.

    Examples:

    - `broadloom card show club.card`
    """
    shown = SignedCard.load(file).card
    print_result(shown.as_dict(), _card_text(shown), json=json)


@command("card check", card)
def check(
    file: FileArgument,
    authority: OwnerOption = None,
    ticket: OwnerOption = None,
    json: JsonOption = False,
) -> int:
    """Check who signed a card, and whether its channel is open.

    Exit status 1 if it was not signed by this owner, or closes the channel.

    Examples:

    - `broadloom card check club.card --ticket ada.ticket`
    """
    owner = _owner(authority, ticket)
    signed = SignedCard.load(file)

    is_valid = signed.owner == owner and is_for_channel(owner, ChannelName.parse(signed.card.channel).id)
    is_open = signed.card.state is CardState.OPEN
    problem = "signed by another owner" if not is_valid else "" if is_open else "closes the channel"
    fields = {"file": file, "number": signed.card.number, "is_valid": is_valid, "is_open": is_open}
    print_result(fields, f"{file}: {problem or f'valid, number {signed.card.number}'}", json=json)
    return SUCCESS if is_valid and is_open else FAILURE


@command("ticket revoked", ticket)
def revoked(
    file: Annotated[Path, argument("The revocation list.", "FILE")],
    authority: OwnerOption = None,
    ticket: OwnerOption = None,
    json: JsonOption = False,
) -> int:
    """Show the tickets on a revocation list, and check who signed it.

    Exit status 1 if it was not signed by this owner.

    Examples:

    - `broadloom ticket revoked revoked.pem --authority club.authority`
    """
    try:
        found = RevocationList(file, _owner(authority, ticket), with_newest=False)
    except InvalidKeyFileError as problem:
        print_error("ticket revoked", str(problem))
        return FAILURE
    fields = {"file": file, "number": found.number, "revoked": list(found.serials)}
    text = f"number   {found.number}\nrevoked  {' '.join(found.serials) or 'none'}"
    print_result(fields, text, json=json)
    return SUCCESS


@command("card publish", card)
async def publish(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    file: Annotated[Path, argument("The card.", "FILE")],
    json: JsonOption = False,
) -> int:
    """Publish a card to all members of a channel.

    Any member can publish what the owner has signed. Exit status 1 if there is no other member.

    Examples:

    - `broadloom card publish chess/club-42 club.card --ticket ada.ticket`
    """
    return await _publish(stop, join_options, channel, file, json=json)


@command("ticket publish", ticket)
async def publish_revocation_list(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    file: Annotated[Path, argument("The revocation list.", "FILE")],
    json: JsonOption = False,
) -> int:
    """Publish a revocation list to all members of a channel.

    The holders of the tickets on it are disconnected everywhere within seconds. Exit status 1 if there is no other
    member.

    Examples:

    - `broadloom ticket publish chess/club-42 revoked.pem --ticket ada.ticket`
    """
    return await _publish(stop, join_options, channel, file, json=json)


async def _publish(stop: StopSignal, join_options: JoinOptions, channel: str, file: Path, *, json: bool) -> int:
    async with joined_channel(channel, join_options, stop) as joined:
        try:
            await joined.wait_for_peers(min(PEERS_TIMEOUT_S, join_options.timeout))
        except TimeoutError:
            print_error(stop.command, f"no other peers on {escape_control_chars(channel)}: nothing was published")
            return FAILURE
        await joined.publish(file)
        print_result({"file": file, "channel": channel}, f"{file}: published on {channel}", json=json)
    return SUCCESS


def _previous(path: Path, issuer: Authority, channel: str) -> SignedCard | None:
    if not path.exists():
        return None
    previous = SignedCard.load(path)
    _check_owner(previous.owner, issuer.certificate, path)
    if previous.card.channel != channel:
        raise UsageError(f"{path} is the card of {previous.card.channel}, not of {channel}: choose another output file")
    return previous


def _check_owner(owner: "Certificate", expected: "Certificate", path: Path) -> None:
    if owner != expected:
        raise InvalidKeyError(f"{path} was signed by another authority")


def _owner(authority: Path | None, ticket: Path | None) -> "Certificate":
    if (authority is None) == (ticket is None):
        raise UsageError("pass --authority or --ticket")
    return Authority.load(authority).certificate if authority is not None else Ticket.load(ticket or "").authority


def _sign(issuer: Authority, made: ChannelCard, previous: SignedCard | None, out: Path, *, json: bool) -> None:
    signed = SignedCard.sign(issuer, made, after=previous)
    signed.save(out)
    text = f"{out}: card of {made.channel}, number {signed.card.number}. Publish it, or give it to the members."
    print_result({"file": out, **signed.card.as_dict()}, text, json=json)


def _card_text(shown: ChannelCard) -> str:
    rows: dict[str, Any] = {
        "channel": shown.channel,
        "number": shown.number,
        "state": shown.state.value,
        "level": shown.level.value,
        "degree": shown.degree,
        "bootstrap": ", ".join(shown.bootstrap) or "none",
        **{f"{role}s": _quota_text(quota) for role, quota in shown.quotas.items()},
        "text": shown.text or "none",
    }
    return "\n".join(f"{name:<10} {escape_control_chars(str(value))}" for name, value in rows.items())


def _quota_text(quota: Quota) -> str:
    parts = []
    if quota.messages_per_s is not None:
        parts.append(f"{quota.messages_per_s:g} messages/s")
    if quota.bytes_per_s is not None:
        parts.append(f"{quota.bytes_per_s:,.0f} bytes/s")
    if quota.message_bytes_max is not None:
        parts.append(f"messages of at most {format_count(quota.message_bytes_max, 'byte')}")
    if quota.requests_per_s is not None:
        parts.append(f"{quota.requests_per_s:g} requests/s")
    return f"{', '.join(parts)}; at once as in {quota.burst_s:g} s"
