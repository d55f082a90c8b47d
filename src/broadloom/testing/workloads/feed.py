"""The feed of a cluster: ticks, and the names of members and ads.

A tick is a JSON object that begins with its time of sending at a fixed position, so that a receiver can compute the
latency without parsing the rest.
"""

import json
import time
from random import Random

_PREFIX = b'{"at":'
_AT = slice(len(_PREFIX), len(_PREFIX) + 17)
"""Unix time with six decimals."""

TICK = "tick"
"""Topic of the ticks on the tape."""

_NAMES = (
    "Ada Ben Cleo Dan Edith Femi Greta Hugo Ines Jonas Kaya Liam Mara Nils Olga Pavel Quinn Rosa Sven Tara Uma Victor "
    "Wanda Xenia Yusuf Zoe Anton Berta Carl Dora Emil Frida Georg Hanna Igor Julia Kurt Lena Max Nora Otto Paula"
)
MEMBER_NAMES = tuple(_NAMES.split())
SYMBOLS = ("ASH", "ELM", "FIR", "OAK", "YEW", "BAY")
ADS = (
    ("Fresh bread at the corner", "food"),
    ("Bicycles repaired while you wait", "repair"),
    ("Evening boat to the islands", "travel"),
    ("Second-hand books, half price", "books"),
    ("Rooms with a view of the harbor", "travel"),
)


def member_name(number: int) -> str:
    """Return the display name of a peer, unique in a cluster."""
    cycle, index = divmod(number - 1, len(MEMBER_NAMES))
    return MEMBER_NAMES[index] + (f" {cycle + 1}" if cycle else "")


def tick(random: Random, prices: dict[str, float]) -> bytes:
    """Return the next price of a random symbol. `prices` holds the state of their random walks."""
    symbol = random.choice(SYMBOLS)
    price = prices[symbol] = max(1.0, prices.get(symbol, 100.0) * (1 + random.gauss(0, 0.0008)))
    fields = {"symbol": symbol, "price": round(price, 2), "size": random.choice((100, 200, 500, 1000))}
    rest = json.dumps(fields, separators=(",", ":"))
    return b"%s%.6f,%s" % (_PREFIX, time.time(), rest[1:].encode())


def sent_at(data: bytes) -> float | None:
    """Return the Unix time of sending; None if this is not a tick."""
    if not data.startswith(_PREFIX):
        return None
    try:
        return float(data[_AT])
    except ValueError:
        return None
