"""Pure functions from Arrow table to Arrow table: what the tables run inside a task, and tests run without Spark."""
