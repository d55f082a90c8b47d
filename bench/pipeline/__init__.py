"""The pipeline at scale: tapes of millions of events through Spark, and the same questions in DuckDB beside it.

`python -m bench.pipeline`, in the environment of `make setup`. Reading order: `tapes.py` (what is read), `questions.py`
and `ask.py` (the SQL), `child.py` (one measurement, inside a process of its own), `watch.py` and `measure.py` (what it
costs, from outside), `same.py` (both must say the same), `report.py` (what came out).
"""
