"""Files and rows that were excluded. The build fills the table when it examines the tapes."""

from broadloom.pipeline.quarantine import QUARANTINE_COLUMNS
from broadloom.pipeline.table import Stage, Table

TABLE = Table("quarantine", "Which files and rows were excluded, and why?", QUARANTINE_COLUMNS, Stage.ALL)
