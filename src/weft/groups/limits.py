"""What strangers may cause: sizes on the wire and in memory, with their units."""

NAME_BYTES_MAX = 128
DESCRIPTION_BYTES_MAX = 1024
DATA_BYTES_MAX = 512 << 10
"""One message of a group. The channel's own limit for one frame is twice this."""
GROUPS_MAX = 20_000
"""Groups known at a time; further ones are refused and counted."""
MEMBERS_MAX = 100_000
"""Members of one group, present and past."""
STANDS_MAX = 1_000_000
"""Members of all groups together."""
AUTHORS_MAX = 100_000
"""Authors of one group."""
GAPS_MAX = 4_096
"""Gaps in what was received from one author. What would make another gap is refused, and fetched later."""
ENTRIES_MAX = 4_096
"""Elements of one list on the wire."""
HAVES_MAX = 16_384
"""Authors, and intervals of all of them, in one question: what does not fit is sent again, needlessly."""
BUCKETS_MAX = 1_024
PENDING_MAX = 1_024
"""Arrivals and questions waiting for our answer."""
PEERS_MAX = 65_536
"""Peers whose member we remember."""
SUSPECTS_MAX = 16
"""What one peer may suspect within a while (`attendance.py`): it has a few neighbours only."""
WANT_MAX = 256
"""Messages asked for by name in one go."""
COUNT_MAX = 1 << 62
"""Sequences and counters: far beyond what anybody says, far below what would overflow."""
BODY_BYTES_MAX = 768 << 10
"""Groups or messages in one page; a page is far smaller unless one message is large."""
