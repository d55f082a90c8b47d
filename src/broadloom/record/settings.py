"""`TapeSettings`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TapeSettings:
    include_payload: bool = False
    """Record the messages themselves, not only their metadata."""
    block_when_full: bool = False
    """When the writer cannot keep up, block (for simulations) instead of dropping and counting rows (live channels)."""

    file_bytes_max: int = 64 << 20
    """A file is finished at this size. It may exceed it by one batch."""
    file_duration_s: float = 60.0
    """A file is finished at this age, which bounds what a crash can lose. Shorter means more and smaller files."""
    files_open_max: int = 64
    """Open files, one per channel. Beyond that, the least recently written one is finished."""

    batch_rows: int = 8192
    """Rows that the writer takes at a time."""
    batch_bytes_max: int = 8 << 20
    """Payload that the writer takes at a time."""
    queue_rows_max: int = 1 << 17
    """Rows waiting for the writer, about 250 bytes each."""
    queue_bytes_max: int = 32 << 20
    """Payload waiting for the writer."""
    row_group_bytes_max: int = 16 << 20
    """Rows of a file are buffered up to this size and written as one row group. Large row groups compress well."""
    buffered_bytes_max: int = 64 << 20
    """The same over all open files."""

    poll_interval_s: float = 0.25
    """How often the writer checks for rows of an idle channel and for files to finish."""
    retry_delay_s: float = 5.0
    """Delay after a disk error before the next file is tried."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if name not in ("include_payload", "block_when_full") and not getattr(self, name) > 0:
                raise ValueError(f"{name} must be greater than 0, not {getattr(self, name)}")
