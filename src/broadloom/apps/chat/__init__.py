"""Threaded chat in a terminal: groups on the left, the conversation as a tree, members on the right.

The model (`thread_tree.py`, `read_state.py`, `chat_model.py`) runs and is tested without a terminal. Only the views
(`app.py` and below) import Textual, which is an extra.
"""
