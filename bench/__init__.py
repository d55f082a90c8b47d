"""Broadloom beside other systems: the same broadcasts, between processes of one machine, measured in the same way.

Reading order: `plan.py` (what is measured), `systems.py` (of whom), `part.py`, `tally.py`, `node.py` and `adapters/`
(inside a process), `machine.py`, `apart.py`, `child.py`, `brokers.py`, `group.py` (from outside), `workloads/` (one
measurement), `run.py` (all of them, interleaved), `summary.py`, `tables.py`, `plots.py` (what came out).
"""
