"""The lab: a channel of real peers in several processes of this machine, which one program started and may kill.

`trial` puts peers through one scenario and audits it; a lab goes on for as long as somebody watches, takes orders, and
checks the promises while it runs. Reading order: `story.py` (what can be watched), `plan.py`, `talk.py` and
`chatting.py` (what is said), `border.py`, `witness.py`, `ledger.py`, `resident.py` and `worker.py` (inside a process),
`nursery.py` and `staff.py` (the processes), `roster.py`, `joining.py`, `shape.py`, `repairs.py`, `figures.py` and
`promises.py` (what is made of what they tell), `keeper.py` (what goes on by itself), `lab.py` (what people do).
"""
