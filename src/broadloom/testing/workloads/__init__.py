"""What test peers send: chat (`chat.py`), a feed of ticks and ads (`feed.py`), self-checking payloads
(`checked_payload.py`)."""
