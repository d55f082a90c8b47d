"""Real peers in worker processes: one forkserver, one pool, one control protocol, one coordinator.

Reading order: `control_protocol.py`, `forkserver.py`, `pool.py`, `coordinator.py` and `run.py` (the coordinator's side),
`worker.py`, `managed_peer.py` and `peer_observer.py` (inside a worker process).
"""
