"""How fast Broadloom is on this machine: real processes as in a trial, which speak as they are told and are timed.

Reading order: `plan.py` (what is asked), `reader.py` and `worker.py` (inside a process), `machine.py` (what it cost),
`stage.py` and `measures.py` (from outside), `figures.py` (what came of it), `sparkline.py`, `table.py`, `command.py`.
"""
