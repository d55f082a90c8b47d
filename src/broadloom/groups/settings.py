"""Settings of the groups layer, and the fixed limits on what other peers can cause, each with its unit and reason."""

from dataclasses import dataclass

from broadloom.protocol.events import payload_bytes
from broadloom.protocol.settings import check_ranges

# -- limits on the wire and in memory

NAME_BYTES_MAX = 128
DESCRIPTION_BYTES_MAX = 1024
DATA_BYTES_MAX = 512 << 10
"""Payload of one group message: half of what one frame of the channel can carry."""
GROUPS_MAX = 20_000
"""Known groups. Further groups are rejected and counted."""
MEMBERS_MAX = 100_000
"""Current and former members of one group."""
MEMBERSHIPS_MAX = 1_000_000
"""Members of all groups together."""
AUTHORS_MAX = 100_000
"""Authors in one group."""
GAPS_MAX = 4_096
"""Gaps in the sequence numbers of one author. A message that would add another gap is rejected and fetched later."""
ENTRIES_MAX = 4_096
"""Elements of one list on the wire."""
INTERVALS_MAX = 16_384
"""Authors, and intervals of all authors, in one history request. Messages beyond that are sent again needlessly."""
BUCKETS_MAX = 1_024
PENDING_MAX = 1_024
"""Requests waiting for our reply."""
PEERS_MAX = 65_536
"""Peers whose member id is remembered."""
SUSPECTS_MAX = 16
"""Peers that one peer may suspect within `SUSPICION_WINDOW_S` (presence.py): it has only a few neighbors to lose."""
MESSAGE_IDS_MAX = 256
"""Messages in one `PostRequest`."""
CREDENTIAL_BYTES_MAX = 4096
"""A certificate with an embedded ticket has less than 1,000 bytes."""
COUNT_MAX = 1 << 62
"""Sequence numbers and versions: far above real use, far below overflow."""
PAGE_PROOFS_MAX = 512
"""Proven posts in one page: some 50 ms of processor time, between two turns of the event loop."""
PAGE_CREDENTIALS_MAX = 64
"""Credentials in one page. Verifying one takes as long as verifying several posts."""
BODY_BYTES_MAX = 768 << 10
"""Uncompressed body of one page. Pages are much smaller unless a single message is large."""


def check_text(label: str, text: str, bytes_max: int) -> None:
    if len(text.encode()) > bytes_max or "\0" in text:
        raise ValueError(f"a {label} must be at most {bytes_max} bytes of UTF-8 without NUL")


def check_data(data: object) -> bytes:
    payload = payload_bytes(data, "send_text")
    if len(payload) > DATA_BYTES_MAX:
        raise ValueError(f"a group message must be at most {DATA_BYTES_MAX:,} bytes; this one has {len(payload):,}")
    return payload


_SECONDS = (0.001, 1e9)
_RANGES: dict[str, tuple[float, float]] = {
    "reply_window_s": _SECONDS,
    "page_timeout_s": _SECONDS,
    "presence_interval_s": _SECONDS,
    "suspicion_timeout_s": _SECONDS,
    "parent_request_delay_s": _SECONDS,
    "orphan_timeout_s": _SECONDS,
    "history_page_bytes": (1, BODY_BYTES_MAX - DATA_BYTES_MAX),
    "history_turn_bytes": (1, 1 << 40),
    "history_bytes_per_s": (1, 1 << 40),
    "history_burst_bytes": (1, 1 << 40),
}
_RETENTION_RANGES: dict[str, tuple[float, float]] = {
    "messages_max": (0, (1 << 32) - 1),
    "age_max_s": (0, (1 << 32) - 1),
    "bytes_max": (0, (1 << 64) - 1),
}
"""What the wire can carry."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings of one member. The members of a channel may use different ones."""

    reply_window_s: float = 3.0
    """Window of the randomized back-off before a reply, on a large channel; smaller channels use a part of it. It is
    about ten times the broadcast latency, so that most candidates hear the first reply before their own turn."""
    page_timeout_s: float = 6.0
    """History: without a page for this long, the client repeats the request, and another holder may serve it."""
    presence_interval_s: float = 15.0
    """Interval between the presence heartbeats of one member."""
    suspicion_timeout_s: float = 4.0
    """A suspected peer that does not respond within this time is shown as offline."""
    parent_request_delay_s: float = 2.0
    """A message that has waited this long for its parent triggers a request for the parent."""
    orphan_timeout_s: float | None = 30.0
    """Then it is delivered as an orphan. None waits forever. Does not run while history is being fetched."""
    history_page_bytes: int = 32 << 10
    """Approximate page size. Small pages leave room for live messages between them."""
    history_turn_bytes: int = 1 << 20
    """After this much, the server waits for the client to request more."""
    history_bytes_per_s: int = 4 << 20
    """History on the channel from all members together: pages of others count against our own rate."""
    history_burst_bytes: int = 2 << 20

    def __post_init__(self) -> None:
        ranges = _RANGES.copy()
        if self.orphan_timeout_s is None:
            del ranges["orphan_timeout_s"]
        check_ranges(self, ranges)


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How much history a group keeps. Its creator chooses it for all members. 0 means unlimited."""

    messages_max: int = 0
    age_max_s: int = 0
    bytes_max: int = 0
    ids_only: bool = False
    """Keep only the ids. Late joiners then see the tree, but not the text."""

    def __post_init__(self) -> None:
        check_ranges(self, _RETENTION_RANGES)
        if not isinstance(self.ids_only, bool):
            raise TypeError(f"ids_only must be True or False, not {self.ids_only!r}")

    @property
    def is_limited(self) -> bool:
        """Whether members prune messages at all."""
        return self.messages_max > 0 or self.age_max_s > 0 or self.bytes_max > 0

    def is_exceeded(self, count: int, size_bytes: int, oldest_ms: int, now_ms: int) -> bool:
        return (
            (self.messages_max > 0 and count > self.messages_max)
            or (self.bytes_max > 0 and size_bytes > self.bytes_max)
            or (self.age_max_s > 0 and oldest_ms < now_ms - 1000 * self.age_max_s)
        )
