"""How deliveries are spread over tasks: a grid of author by receiver.

Order, doubles and gaps concern one author and one receiver. So a cell of the grid has all that its receivers were given
of its authors. What all receivers need of an author goes to every cell of its row. One author that says everything, or
one receiver that records alone, still fills several cells.
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
        """About so many cells, never fewer."""
        receivers = max(1, round(cells**0.5))
        return cls(-(-cells // receivers), receivers)

    @property
    def cells(self) -> int:
        return self.authors * self.receivers

    def cell(self) -> "Column":
        """Number of the cell of a row that has an author and a receiver."""
        return hash_bucket(self.authors, "channel", "author") * self.receivers + self.column()

    def column(self, receiver: str = "receiver") -> "Column":
        """Which cells of a row are this receiver's."""
        return hash_bucket(self.receivers, "channel", receiver)

    def to_all_receivers(self, frame: "DataFrame") -> "DataFrame":
        """A copy of rows that have an author for each cell of its row, with the number of the cell as `bucket`."""
        from pyspark.sql import functions as F  # noqa: N812

        cells = F.sequence(F.lit(0), F.lit(self.receivers - 1))
        copies = frame.withColumn("slot", F.explode(cells))
        row = hash_bucket(self.authors, "channel", "author") * self.receivers
        return copies.withColumn("bucket", row + F.col("slot")).drop("slot")
