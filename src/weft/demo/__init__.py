"""`weft demo`: a lab, its recorder, the pipeline over its tapes, and the pages over all of it, by one command.

Reading order: `options.py`, `analysis.py` (the process that Spark runs in), `analyst.py` (its coordinator), `once.py`
and `summary.py` (`--once`), `show.py` (with a browser).
"""
