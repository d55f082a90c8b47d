"""The live tables: rates, latency, sessions and fabric of tapes that are still being written, for a dashboard.

`step.py` is one micro-batch of one channel, a pure function over Arrow; `store.py` keeps the results as Parquet with a
manifest for each batch, and reads them without Spark; `broadloom.pipeline.live.follow` drives both.
"""
