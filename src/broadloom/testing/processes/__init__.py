"""Real peers in worker processes: one forkserver, one pool, one control protocol.

Reading order: `control_protocol.py`, `forkserver.py` and `pool.py` (the coordinator's side), `worker.py`,
`managed_peer.py` and `peer_observer.py` (inside a worker process).
"""
