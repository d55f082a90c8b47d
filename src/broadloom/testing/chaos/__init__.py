"""Chaos runs: real processes and sockets on one machine, injected faults, and an audit of every delivery.

The counterpart of the simulator: there a seed decides everything, here the machine does. Reading order: `config.py`,
`worker.py` (inside a process), `chaos_run.py`, `scenarios.py`, `final_audit.py`, `report.py`.
"""
