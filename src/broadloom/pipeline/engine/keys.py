"""One int64 for an author, a receiver and a sequence number, so that joins and sorts compare one number.

Codes of texts and sequence numbers are packed as digits of different bases. Where they do not fit, which takes a
nonsensical sequence number, sequence numbers are replaced by their rank among those that occur.
"""

from collections.abc import Iterable

import polars as pl

from broadloom.pipeline.engine.events import TEXT

_SPAN_MAX = 1 << 31
_KEY_MAX = 1 << 63


class MessageKeys:
    """`texts` are all columns of authors and receivers, `sequences` all sequence numbers that occur."""

    def __init__(self, texts: Iterable[pl.Series], sequences: Iterable[pl.Series]) -> None:
        numbers = [each for each in sequences if each.len() > each.null_count()]
        low = min((int(each.min()) for each in numbers), default=0)  # type: ignore[arg-type]
        high = max((int(each.max()) for each in numbers), default=0)  # type: ignore[arg-type]
        self._texts = 1 + max((int(each.to_physical().max() or 0) for each in texts), default=0)  # type: ignore[arg-type]
        self._span = high + 1
        self._ranks: pl.Series | None = None
        if low < 0 or self._span >= _SPAN_MAX or self._texts**2 * self._span >= _KEY_MAX:
            self._ranks = pl.concat([each.drop_nulls().unique() for each in numbers]).unique().sort().rename("sequence")
            self._span = len(self._ranks)
            if self._texts**2 * self._span >= _KEY_MAX:
                raise OverflowError(f"{self._texts:,} texts and {self._span:,} sequence numbers do not fit a key")

    def message(self, author: str = "author", sequence: str = "sequence") -> pl.Expr:
        return _code(author) * self._span + self._number(sequence)

    def delivery(self, author: str = "author", receiver: str = "receiver", sequence: str = "sequence") -> pl.Expr:
        return (_code(author) * self._texts + _code(receiver)) * self._span + self._number(sequence)

    def unpack(self, frame: pl.DataFrame, key: str) -> pl.DataFrame:
        """Add `author`, `receiver`, `sequence`, and `pair`, a number for the first two."""
        pair = pl.col(key) // self._span
        number = pl.col(key) % self._span
        frame = frame.with_columns(pair=pair, sequence=number)
        if self._ranks is not None:
            frame = frame.with_columns(sequence=self._ranks.gather(frame["sequence"]))
        return frame.with_columns(
            author=(pl.col("pair") // self._texts).cast(pl.UInt32).cat.to(TEXT),
            receiver=(pl.col("pair") % self._texts).cast(pl.UInt32).cat.to(TEXT),
        )

    def _number(self, column: str) -> pl.Expr:
        if self._ranks is None:
            # A number out of range must not become the key of another message.
            return pl.when(pl.col(column).is_between(0, self._span - 1)).then(pl.col(column))
        codes = pl.Series(range(len(self._ranks)), dtype=pl.Int64)
        return pl.col(column).replace_strict(self._ranks, codes, default=None, return_dtype=pl.Int64)


def _code(column: str) -> pl.Expr:
    return pl.col(column).to_physical().cast(pl.Int64)
