"""Real peers in worker processes: one forkserver, one pool, one control protocol, one coordinator.

Reading order: `control_protocol.py`, `forkserver.py`, `pool.py`, `coordinator.py`, `run.py`; inside a worker process
`worker.py`, `managed_peer.py`, `peer_observer.py`.
"""
