"""Spark's daemon for Python workers, with the engine already imported: workers are forked from it.

`session()` names this module in `spark.python.daemon.module` if Spark runs embedded. No thread runs before the fork:
polars and pyarrow start theirs on first use.
"""

import broadloom.pipeline.engine.distributed  # noqa: F401

if __name__ == "__main__":
    from pyspark.daemon import manager

    manager()
