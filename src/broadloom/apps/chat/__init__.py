"""The threaded chat: groups on the left, the conversation as a tree, members on the right; in a terminal.

What is known (`tree.py`, `reading.py`, `talks.py`) stands apart from what is drawn (`app.py` and the views): the former
runs and is tested without a terminal. Only the views import Textual, which is an extra.
"""
