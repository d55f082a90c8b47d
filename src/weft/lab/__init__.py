"""The lab: a channel of real peers in several processes of this machine, which one program started and may kill.

`trial` puts peers through one scenario and audits it; a lab goes on for as long as somebody watches, takes orders, and
checks the promises while it runs. Reading order: `story.py` (what can be watched), `plan.py`, `talk.py` (what is said),
`border.py`, `witness.py`, `ledger.py`, `chatting.py`, `resident.py` and `worker.py` (inside a process), `nursery.py`
and `staff.py` (processes), `shape.py`, `repairs.py`, `figures.py`, `promises.py` (what is made of what they tell),
`lab.py`.
"""
