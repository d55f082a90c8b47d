"""Broadcast: every message of every author reaches every peer once, in the author's order.

The life of one frame: `broadcaster.py` numbers messages, bundles them into a frame and chooses flood or tree;
`retention.py` keeps the frame for gap repair; each link gets it at once, gets an `IHave` (`plumtree.py`) or gets it
once it is no longer congested (`send_backlog.py`). At each other peer `receiver.py` recognizes duplicates by the
author's `receive_window.py`, verifies signatures (`signing.py`), relays the frame and delivers its messages in order. A
new link starts with a digest (`anti_entropy.py`); gaps are closed by `gap_repair.py` and `backfill.py`, or reported as
`Missed`. `acks.py` tells the author how far its receivers are.
"""
