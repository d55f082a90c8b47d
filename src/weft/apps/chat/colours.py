"""Colours of names, for dark screens and light ones."""

from functools import cache

from rich.style import Style

_ON_DARK = (
    "#7fb4ff",
    "#f4a26b",
    "#8fd694",
    "#e58fd0",
    "#f2cf63",
    "#7fdbda",
    "#c3a6ff",
    "#ff8f8f",
    "#b7d36b",
    "#9fc1d9",
)
_ON_LIGHT = (
    "#1f5fbf",
    "#a64b00",
    "#1b7a34",
    "#9c2a84",
    "#7a5b00",
    "#007c7a",
    "#6437b5",
    "#b3261e",
    "#51700a",
    "#33607d",
)


@cache
def names_of(*, dark: bool) -> tuple[Style, ...]:
    return tuple(Style(color=each) for each in (_ON_DARK if dark else _ON_LIGHT))
