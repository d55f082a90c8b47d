"""Fixed limits of the switch: what other members can cause, each with its unit and reason."""

LAYER = "Sw"
"""The mark of the switch among the layers of a channel."""

# -- on the wire

NAME_BYTES_MAX = 256
"""Operations, files, sessions and program types."""
TEXT_BYTES_MAX = 4096
"""The text of a failure, with the last lines of a program that did not start."""
NAMES_MAX = 1024
"""Operations or files in one pattern."""
PATTERNS_MAX = 10_000
"""Patterns, and files, of one program."""
PATTERNS_BYTES_MAX = 512 << 10
"""Names in all patterns of one program, so that its registration can be announced."""
RECORD_BYTES_MAX = 1 << 20
"""The registration of one program, compressed."""
RECORD_PLAIN_BYTES_MAX = 2 << 20
"""The same before compression: a decompression bomb ends here."""
RECORDS_MAX = 20_000
"""Registrations in one reply, as many as a roster has members."""
RECORDS_BYTES_MAX = 3 << 20
"""Registrations in one reply: it must fit into one direct reply. Further ones are requested from their owners."""
DATA_BYTES_MAX = (4 << 20) - (8 << 10)
"""Data of a message or a reply: what a direct request can carry, with 8 KiB for the other fields."""

# -- the directory

SETTLE_S = 0.5
"""The directory is not complete before this time: twice as long as a program takes to list its layers in the roster."""
ANNOUNCE_DELAY_S = 0.02
"""Registrations within this time are announced together."""
REANNOUNCE_S = 0.3
"""Minimum time between two announcements for newcomers."""
NOT_STARTED_WAIT_S = 0.05
"""After a failed start, how long a sender that does not know all registrations waits for another handler. The
failure is reported within 200 ms of the exit."""
YOUNG_S = 3.0
"""A program that has just started announces itself again when another one starts: neither may be in the other's roster
as a program with a switch."""
PULL_DELAY_S = 0.2
"""How often the directory looks for members whose registration it lacks until it is complete; later every second."""
PULL_TIMEOUT_S = 3.0
PULLS_MAX = 4
"""Members that are asked for registrations at a time."""
UNRESPONSIVE_S = 10.0
"""A member that lists the switch among its layers, but does not send its registration within this time, counts as one
without: otherwise it could keep all others from ever knowing that nobody handles a request."""
FOUND_MAX = 1024
"""Operations, with their scope and file, whose handlers are remembered until a registration changes."""
UNVERIFIED_MAX = 256
UNVERIFIED_BYTES_MAX = 4 << 20
"""Registrations of members that are not in the roster yet. Others are requested later."""

# -- handlers and queues

HANDLER_WAITING_MAX = 192
"""Requests that wait for one handler; others go to the next handler. With `concurrency` of 64 this is all that the
requests of a channel run at a time."""
OUTGOING_MAX = 10_000
"""Open requests of this program."""
DEADLINE_S_MAX = 30 * 24 * 3600.0
QUEUE_MESSAGES_MAX = 10_000
QUEUE_BYTES_MAX = 64 << 20
"""What waits for programs that do not run, of all senders together."""
QUEUE_SENDER_MESSAGES_MAX = 1_000
QUEUE_SENDER_BYTES_MAX = 16 << 20
"""What one sender may have in the queues of one program."""
QUEUE_HOSTS_MAX = 100
"""Members that are asked for the lengths of their queues."""
FORWARDS_MAX = 32
"""Queued messages on their way to one program at a time."""
EXPIRE_POLL_S = 0.25
QUEUE_TTL_S = 7 * 24 * 3600.0
"""How long a notice waits for its program."""

# -- programs

BACKOFF_S_MAX = 300.0
"""Pause after failed starts."""
STDERR_LINES_MAX = 8
STDERR_BYTES_MAX = 2048
"""The end of what a program wrote to its standard error, for the error of the sender."""
