"""Live tables over tapes that are still being written: traffic, latency, sessions and fabric snapshots.

`micro_batch.py` processes one micro-batch of one channel, as a pure function over Arrow. `store.py` keeps the results
as Parquet with a manifest per batch, and reads them without Spark. `follow.py` drives both.
"""
