"""Weft: any number of programs share one channel, with no server.

Each program that joins can broadcast, and each gets every message, once, in order.
"""

__version__ = "0.1.0"
