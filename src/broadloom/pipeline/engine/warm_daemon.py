"""Spark's daemon for Python workers, with the engine already imported: workers are forked from it.

`session()` names this module in `spark.python.daemon.module` if Spark runs embedded. No thread runs before the fork:
polars and pyarrow start theirs on first use.
"""

import gc

gc.disable()
import broadloom.pipeline.engine.distributed  # noqa: E402, F401

gc.freeze()  # what is imported stays: workers need not look at it again
gc.enable()

if __name__ == "__main__":
    from pyspark.daemon import manager

    manager()
