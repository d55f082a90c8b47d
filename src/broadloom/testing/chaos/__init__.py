"""Trials: real processes on one machine, real sockets, real deaths; and an audit of every delivery.

The counterpart of `sim`: there a seed decides everything, here the machine does. Reading order: `payload.py` (what is
sent), `ledger.py` (what one peer was given), `member.py` and `worker.py` (inside a process), `processes.py`,
`crew.py` and `trial.py` (from outside), `audit.py` (the promises), `scenarios.py` (what happens), `command.py`.
"""
