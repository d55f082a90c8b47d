"""A local cluster: real peers of one channel in several processes of this machine, to watch and to disturb.

A chaos run executes one scenario and audits it; a cluster runs as long as its program wants, takes commands, and checks
the guarantees meanwhile. Reading order: `config.py`, `cluster.py` (the public class), `timeline.py` (what can be
watched), `supervisor.py`, `growth.py`, `cluster_log.py`, `metrics.py`, `worker.py` (inside a process), `demo_run.py`.
"""
