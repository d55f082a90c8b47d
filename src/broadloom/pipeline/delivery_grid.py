"""Distributes deliveries over tasks: a grid of authors by receivers.

Order, duplicates and gaps concern one author and one receiver. So a cell of the grid has all deliveries from its
authors to its receivers, and the messages of an author are copied to every cell of its row. A single author that sends
everything, or a single receiver that records, still fills several cells.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from broadloom.pipeline.buckets import hash_bucket

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True)
class DeliveryGrid:
    authors: int
    receivers: int

    @classmethod
    def of(cls, cells: int) -> "DeliveryGrid":
        """A grid with at least this number of cells, and not many more."""
        receivers = max(1, round(cells**0.5))
        return cls(-(-cells // receivers), receivers)

    @property
    def cells(self) -> int:
        return self.authors * self.receivers

    def cell(self) -> "Column":
        """Cell of a row with an author and a receiver."""
        return hash_bucket(self.authors, "channel", "author") * self.receivers + self.column()

    def column(self, receiver: str = "receiver") -> "Column":
        """Column of the grid that belongs to this receiver."""
        return hash_bucket(self.receivers, "channel", receiver)

    def to_all_receivers(self, frame: "DataFrame") -> "DataFrame":
        """Copy each row to all cells of its author; `bucket` is the cell."""
        from pyspark.sql import functions as F  # noqa: N812

        cells = F.sequence(F.lit(0), F.lit(self.receivers - 1))
        copies = frame.withColumn("slot", F.explode(cells))
        row = hash_bucket(self.authors, "channel", "author") * self.receivers
        return copies.withColumn("bucket", row + F.col("slot")).drop("slot")
