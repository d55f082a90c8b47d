"""`Missed`: the event of all applications for a program that reads too slowly."""

from typing import NamedTuple


class Missed(NamedTuple):
    """This program did not read its events in time: the oldest were dropped."""

    event_count: int
