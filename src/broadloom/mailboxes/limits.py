"""The fixed limits on what other members can cause, and the settings of one program."""

from dataclasses import dataclass

from broadloom.protocol.events import payload_bytes
from broadloom.protocol.settings import check_ranges
from broadloom.wire.message_headers import checked_levels

PAGE_BYTES_MAX = 64 << 10
"""A value, or the data of a letter: one page of the patent."""
OWNER_BYTES_MAX = 64
NAME_BYTES_MAX = 255
VALUES_MAX = 200_000
"""Mailboxes of all owners that one program knows."""
OWNER_VALUES_MAX = 20_000
"""Mailboxes of one owner. Further ones are ignored, and reported once (`LimitReached`)."""
TABLE_BYTES_MAX = 256 << 20
OWNER_VALUE_BYTES_MAX = 64 << 20
"""Values of one owner together."""
REVISION_MAX = 1 << 62
"""Far above real use, far below overflow."""
TTL_S_MAX = 1e12
"""As milliseconds it fits into a record."""
BOUND_MAX = 20_000
"""Mailboxes that one program binds."""

BLOCK_LETTERS_MAX = 256
BLOCK_BYTES = 256 << 10
"""Letters to one mailbox that are sent together."""
OUTBOX_LETTERS_MAX = 10_000
OUTBOX_BYTES_MAX = 16 << 20
"""Letters that wait for one mailbox of another member."""
ROOM = 1000
"""Letters that wait in a mailbox, by default."""
SENDER_SHARE = 0.75
"""Part of the room that the letters of one sender may take, so that it cannot shut out others."""

BUCKETS = 256
"""Parts of the table that are compared by hash."""
SYNC_PAGE_BYTES = 256 << 10
SYNC_PAGES_BURST = 128
SYNC_PAGES_PER_S = 32.0
"""Pages of the table that one member gets from another. A page is half full on average: 16 MiB at once, then 4 MiB per
second."""
CREDENTIALS_MAX = 256
"""Certificates in one page. Verifying one takes as long as verifying several values."""
CREDENTIAL_BYTES_MAX = 4096
PROOF_BYTES_MAX = 64

WATCH_CHANGES_MAX = 20_000
"""Changes that wait for a watcher. Then only the last one of each mailbox is kept."""


def check_name(name: str) -> str:
    """Mailbox names have levels, as topics: `sensors/kitchen/temperature`."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a mailbox is text, not {name!r}")
    if not name.isprintable() or "*" in name:
        raise ValueError(f"mailbox {name!r}: control characters and `*` are not allowed in a name")
    return checked_levels("mailbox", name)


def check_owner(owner: str) -> str:
    if not isinstance(owner, str):
        raise TypeError(f"the name of an owner is text, not {owner!r}")
    if not owner or not owner.isprintable() or len(owner.encode()) > OWNER_BYTES_MAX:
        raise ValueError(f"owner {owner[:40]!r}: must be 1 to {OWNER_BYTES_MAX} bytes of printable text")
    return owner


def check_page(data: object) -> bytes:
    payload = payload_bytes(data, "text.encode() or json.dumps(value).encode()")
    if len(payload) > PAGE_BYTES_MAX:
        raise ValueError(f"{len(payload):,} bytes: a value or a letter has at most {PAGE_BYTES_MAX:,}")
    return payload


_SECONDS = (0.001, 1e9)
_RANGES: dict[str, tuple[float, float]] = {
    "digest_interval_s": _SECONDS,
    "digest_reply_s": _SECONDS,
    "sync_timeout_s": _SECONDS,
    "tombstone_s": _SECONDS,
}


@dataclass(frozen=True, slots=True)
class MailboxSettings:
    """Settings of one program. The members of a channel may use different ones."""

    digest_interval_s: float = 10.0
    """Time without a digest after which a member broadcasts its own. All members share one timer in effect, because a
    digest that equals one's own restarts it."""
    digest_reply_s: float = 0.3
    """Longest random delay before a member answers a digest that differs from its own. Multiplied by the number of
    members / 16 on larger channels."""
    sync_timeout_s: float = 1.5
    """A member that does not send a page of its table in this time is replaced by another one."""
    tombstone_s: float = 86_400.0
    """How long it is remembered that a mailbox was unbound. A keeper that was away for longer can bring it back."""

    def __post_init__(self) -> None:
        check_ranges(self, _RANGES)
