"""What others wrote, made fit for a terminal: shown, never obeyed, and as wide as we think it is.

Names, descriptions and texts can hold anything: signs that steer a terminal, signs that turn the direction of writing
round, marks that pile up over other lines, and emoji whose width every terminal sees differently. Here:

- What steers or is invisible is spelled out (`\\x1b`, `\\u202e`).
- Emoji come in their plain form: a family as its members, without skin colour, so that all terminals draw them equally
  wide. Exports and the store keep what was written.
- At most a few marks stand on one letter.
"""

import unicodedata
from collections.abc import Iterator

from rich.cells import cell_len, chop_cells

COMBINING_MARKS_MAX = 3
"""Accents on one letter: enough for any script, too few to paint over other lines."""
TAB = "    "
_JOINER, _NON_JOINER = "\u200d", "\u200c"
_INVISIBLE_CHARS = "\u115f\u1160\u2800\u3164\uffa0"
"""Letters and signs by their class, and nothing to be seen."""


def clean(text: str) -> str:
    """Several lines stay several lines."""
    if text.isascii() and text.isprintable():
        return text
    text = text.replace("\r\n", "\n").replace("\t", TAB)
    return "\n".join(map(_clean_line, text.split("\n")))


def clean_line(text: str) -> str:
    """All in one line, without blanks at its ends."""
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
                before = "\u25cc"  # it must not stand on what we draw ourselves
                yield before
            yield char
        elif char == _JOINER:
            continue
        elif char == _NON_JOINER and before and unicodedata.category(before)[0] in "LM":
            yield char  # Persian and other scripts need it
        elif kind == "Zs":
            before, marks = " ", 0
            yield "  " if char == "\u3000" else " "
        elif "\U0001f3fb" <= char <= "\U0001f3ff" and before and unicodedata.category(before) == "So":
            continue  # the colour of a skin
        else:
            before, marks = char, 0
            yield (
                char if char.isprintable() and char not in _INVISIBLE_CHARS else char.encode("unicode_escape").decode()
            )


def _is_variation_selector(char: str) -> bool:
    """Says how the sign before it is to be drawn, and so how wide."""
    return "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef"


def decode_text(data: bytes) -> str:
    """The words of a message, not cleaned."""
    try:
        return data.decode().removesuffix("\n")
    except UnicodeDecodeError:
        return f"({len(data):,} bytes that are no text)"


def truncate(text: str, width: int) -> str:
    """So many cells at most; what is longer ends in an ellipsis."""
    if cell_len(text) <= width:
        return text
    if width < 1:
        return ""
    return (chop_cells(text, width - 1)[0] if width > 1 else "") + "…"


def wrap(text: str, width: int, lines_max: int, first_width: int | None = None) -> tuple[list[str], bool]:
    """Cleaned text in lines of so many cells, and whether there was more. The first line may have another width."""
    width, room = max(width, 2), first_width if first_width is not None else width
    lines: list[str] = []
    for paragraph in text.split("\n"):
        rest = paragraph
        while True:
            if len(lines) == lines_max:
                return lines, True
            # What cannot stand in this line anyway is not measured: a message may be very long.
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
    """As many words as fit; a word that fits into no line is cut."""
    fits: str = chop_cells(text, width)[0]
    if len(fits) == len(text) or text[len(fits)] == " ":
        return fits
    space = fits.rfind(" ")
    return fits[: space + 1] if space > 0 and fits[:space].strip() else fits
