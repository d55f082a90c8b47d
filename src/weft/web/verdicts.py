"""What the audit found, in sentences: one for each channel on the tapes."""

from dataclasses import dataclass

from weft.web.shelf import Filter, Shelf

CHANNELS_MAX = 50
INNOCENT = ("missed_reported",)
FINDINGS = ("missing", "double", "out_of_order", "before_parent", "not_present", "own", "never_sent", *INNOCENT)


@dataclass(frozen=True, slots=True)
class Verdict:
    is_clean: bool
    sentence: str
    remarks: str


def verdicts(shelf: Shelf) -> list[Verdict]:
    """Nothing if the table is not there yet."""
    book = next((each for each in shelf.books() if each.key == "verdict"), None)
    if book is None or not book.rows:
        return []
    told = []
    for row in shelf.page(book, Filter(), 0, CHANNELS_MAX).to_pylist():
        found = {name: row.get(name) or 0 for name in FINDINGS}
        wrong = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in found.items() if count)
        sentence = (
            f"{row['owed']:,} deliveries were owed to {row['members']:,} members, of {row['messages']:,} messages: "
            f"{wrong or 'all of them were made, once and in order'}."
        )
        told.append(Verdict(bool(row["clean"]), sentence, row.get("remarks") or ""))
    return told
