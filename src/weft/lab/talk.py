"""What the peers of a lab say, apart from their conversations: ticks, identifications, adverts.

Each is a line of JSON that begins with the moment it was said, at a fixed place, so that every receiver can tell how
long it took without reading the rest. On the tape they are what the pipeline's tables read: an identification becomes a
row of that kind at all who hear it, so does an advert; ticks are messages with a topic.
"""

import json
import time
from random import Random
from typing import Any

_HEAD = b'{"at":'
_AT = slice(len(_HEAD), len(_HEAD) + 17)
"""Unix seconds with six decimals."""

TICK, IDENT, ADVERT = "tick", "ident", "advert"

_NAMES = (
    "Ada Ben Cleo Dan Edith Femi Greta Hugo Ines Jonas Kaya Liam Mara Nils Olga Pavel Quinn Rosa Sven Tara Uma Victor "
    "Wanda Xenia Yusuf Zoe Anton Berta Carl Dora Emil Frida Georg Hanna Igor Julia Kurt Lena Max Nora Otto Paula"
)
NAMES = tuple(_NAMES.split())
SYMBOLS = ("ASH", "ELM", "FIR", "OAK", "YEW", "BAY")
ADVERTS = (
    ("Fresh bread at the corner", "food"),
    ("Bicycles repaired while you wait", "repair"),
    ("Evening boat to the islands", "travel"),
    ("Second-hand books, half price", "books"),
    ("Rooms with a view of the harbour", "travel"),
)


def name_of(number: int) -> str:
    """What people call the peer of this number, for as long as the lab lives."""
    again, place = divmod(number - 1, len(NAMES))
    return NAMES[place] + (f" {again + 1}" if again else "")


def tick(chance: Random, prices: dict[str, float]) -> bytes:
    """`prices` is where they stand; they walk."""
    symbol = chance.choice(SYMBOLS)
    price = prices[symbol] = max(1.0, prices.get(symbol, 100.0) * (1 + chance.gauss(0, 0.0008)))
    return _line(TICK, symbol=symbol, price=round(price, 2), size=chance.choice((100, 200, 500, 1000)))


def ident(name: str) -> bytes:
    return _line(IDENT, name=name)


def advert(chance: Random) -> bytes:
    name, topic = chance.choice(ADVERTS)
    return _line(ADVERT, name=name, topic=topic)


def _line(kind: str, **fields: Any) -> bytes:
    rest = json.dumps({"kind": kind, **fields}, separators=(",", ":"))
    return b"%s%.6f,%s" % (_HEAD, time.time(), rest[1:].encode())


def said_at(data: bytes) -> float | None:
    """When, in Unix seconds; None if it is nothing of ours."""
    if not data.startswith(_HEAD):
        return None
    try:
        return float(data[_AT])
    except ValueError:
        return None


def read(data: bytes) -> dict[str, Any] | None:
    """The whole of it; None if it is nothing of ours."""
    if not data.startswith(_HEAD):
        return None
    try:
        told = json.loads(data)
    except ValueError:
        return None
    return told if isinstance(told, dict) and "kind" in told else None
