"""Every number that a tape goes by, with its unit and its reason."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TapeSettings:
    include_payload: bool = False
    """Whether messages themselves are kept. Without it a tape tells who, when and how much, not what."""
    block_when_full: bool = False
    """If the writer cannot keep up: wait for it (a simulation), or drop rows and say how many (a live channel)."""

    file_bytes_max: int = 64 << 20
    """A file is finished when it has grown to this (it may exceed it by one batch)."""
    file_duration_s: float = 60.0
    """A file is finished when it is so old: what a crash can cost. Shorter makes more and smaller files."""
    files_open_max: int = 64
    """Files being written, one for each channel; of more, the one that was not written to for longest is finished."""

    batch_rows: int = 8192
    """Rows that the writer takes at once."""
    batch_bytes_max: int = 8 << 20
    """Payload that the writer takes at once."""
    queue_rows_max: int = 1 << 17
    """Rows that wait for the writer, about 250 bytes each."""
    queue_bytes_max: int = 32 << 20
    """Payload that waits for the writer."""
    row_group_bytes_max: int = 16 << 20
    """Rows of a file are gathered up to this and then written as one row group, which is what compresses well."""
    buffered_bytes_max: int = 64 << 20
    """The same over all open files."""

    poll_interval_s: float = 0.25
    """How often the writer looks for rows of a quiet channel, and for files whose time is up."""
    retry_delay_s: float = 5.0
    """Pause after trouble with the disk before the next file is tried."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if name not in ("include_payload", "block_when_full") and not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
