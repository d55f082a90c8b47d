"""Agreed order: the entries of a conversation come in the same order at every member (docs/order.md).

The core (replica.py and its parts) is sans-IO. It runs over a real channel (channel_runtime.py) or a simulated peer
(testing/sim/order_runtime.py).
"""

from broadloom.errors import NoMajorityError, OrderTimeoutError
from broadloom.order.codec import LAYER
from broadloom.order.model import (
    Diverged,
    Entry,
    Epoch,
    Mode,
    OrderEvent,
    Placed,
    Resumed,
    Rewound,
    SequencerChanged,
    Skipped,
    Stalled,
)
from broadloom.order.order import Order, OrderItem, ordered
from broadloom.order.settings import OrderSettings

__all__ = [
    "LAYER",
    "Diverged",
    "Entry",
    "Epoch",
    "Mode",
    "NoMajorityError",
    "Order",
    "OrderEvent",
    "OrderItem",
    "OrderSettings",
    "OrderTimeoutError",
    "Placed",
    "Resumed",
    "Rewound",
    "SequencerChanged",
    "Skipped",
    "Stalled",
    "ordered",
]
