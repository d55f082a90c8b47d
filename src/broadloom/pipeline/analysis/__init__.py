"""What several tables share: pure functions and classes over polars frames, which know nothing of Spark."""
