"""Broadloom compared with other systems: the same broadcasts between processes of one machine, measured the same way.

Reading order: `plan.py` (the cases), `systems.py` (the systems); inside a process `process_config.py`,
`delivery_check.py`, `node.py` and `adapters/`; in the driver `machine.py`, `network_namespace.py`, `child_process.py`,
`brokers.py` and `group.py`; `workloads/` (one measurement), `run.py` (all of them, interleaved); the results in
`summary.py`, `tables.py` and `plots.py`.
"""
