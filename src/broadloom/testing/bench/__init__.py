"""`broadloom bench`: measure throughput, latency, all-to-all and join on this machine, with real processes.

Reading order: `config.py`, `worker.py` (inside a process), `runner.py`, `benchmarks.py`, `results.py`.
"""
