"""Make untrusted text safe for a terminal: displayed, never interpreted, and with a known width.

Names, descriptions and messages may contain control characters, bidirectional overrides, stacked combining marks, and
emoji whose width differs between terminals.

- Control and invisible characters are escaped (`\\x1b`, `\\u202e`).
- Emoji are reduced to a plain form without joiners and skin tones, so that all terminals agree on the width. Exports
  and the store keep the original.
- A letter carries at most a few combining marks.
"""

import unicodedata
from collections.abc import Iterator

from rich.cells import cell_len, chop_cells

COMBINING_MARKS_MAX = 3
"""Combining marks per letter: enough for any script, too few to cover other lines."""
TAB = "    "
_JOINER, _NON_JOINER = "\u200d", "\u200c"
_INVISIBLE_CHARS = "\u115f\u1160\u2800\u3164\uffa0"
"""Escape characters by category."""


def clean(text: str) -> str:
    """Keeps line breaks."""
    if text.isascii() and text.isprintable():
        return text
    text = text.replace("\r\n", "\n").replace("\t", TAB)
    return "\n".join(map(_clean_line, text.split("\n")))


def clean_line(text: str) -> str:
    """One line, stripped."""
    if text.isascii() and text.isprintable():
        return text.strip()
    return " ".join(clean(text).split())


def _clean_line(line: str) -> str:
    if line.isascii() and line.isprintable():
        return line
    return "".join(_safe_chars(line))


def _safe_chars(line: str) -> Iterator[str]:
    before, marks = "", 0
    for char in line:
        if " " <= char <= "~":
            before, marks = char, 0
            yield char
            continue
        kind = unicodedata.category(char)
        if kind in ("Mn", "Me"):
            if _is_variation_selector(char):
                continue
            marks += 1
            if marks > COMBINING_MARKS_MAX:
                continue
            if not before or before == " ":
                before = "\u25cc"  # must not combine with what we draw
                yield before
            yield char
        elif char == _JOINER:
            continue
        elif char == _NON_JOINER and before and unicodedata.category(before)[0] in "LM":
            yield char  # needed in Persian and other scripts
        elif kind == "Zs":
            before, marks = " ", 0
            yield "  " if char == "\u3000" else " "
        elif "\U0001f3fb" <= char <= "\U0001f3ff" and before and unicodedata.category(before) == "So":
            continue  # skin tone
        else:
            before, marks = char, 0
            yield (
                char if char.isprintable() and char not in _INVISIBLE_CHARS else char.encode("unicode_escape").decode()
            )


def _is_variation_selector(char: str) -> bool:
    """Selects how the previous character is drawn, and so its width."""
    return "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef"


def decode_text(data: bytes) -> str:
    """The text of a message, not sanitized."""
    try:
        return data.decode().removesuffix("\n")
    except UnicodeDecodeError:
        return f"({len(data):,} bytes that are no text)"


def truncate(text: str, width: int) -> str:
    """At most this many cells, with an ellipsis if it is cut."""
    if cell_len(text) <= width:
        return text
    if width < 1:
        return ""
    return (chop_cells(text, width - 1)[0] if width > 1 else "") + "…"


def wrap(text: str, width: int, lines_max: int, first_width: int | None = None) -> tuple[list[str], bool]:
    """Wrap sanitized text; also whether there was more. The first line may have another width."""
    width, room = max(width, 2), first_width if first_width is not None else width
    lines: list[str] = []
    for paragraph in text.split("\n"):
        rest = paragraph
        while True:
            if len(lines) == lines_max:
                return lines, True
            # Do not measure what cannot fit into this line: a message may be very long.
            head = rest[: 2 * room + 2]
            if len(head) == len(rest) and cell_len(rest) <= room:
                lines.append(rest)
                room = width
                break
            line = _first_line(head, max(room, 2))
            lines.append(line.rstrip())
            rest = rest[len(line) :].lstrip(" ")
            room = width
            if not rest:
                break
    return lines, False


def _first_line(text: str, width: int) -> str:
    """As many words as fit; a word longer than a line is split."""
    fits: str = chop_cells(text, width)[0]
    if len(fits) == len(text) or text[len(fits)] == " ":
        return fits
    space = fits.rfind(" ")
    return fits[: space + 1] if space > 0 and fits[:space].strip() else fits
