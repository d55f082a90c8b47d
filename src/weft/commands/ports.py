"""`weft ports`: where a channel's peers listen."""

import json as json_module
from itertools import islice

from weft.commands.ending import told
from weft.commands.errors import FINE, Mistake
from weft.fabric import ChannelName
from weft.fabric.port_order import PortOrder


def ports(channel: str, count: int, *, json: bool) -> int:
    return told("ports", lambda: _ports(channel, count, json))


def _ports(channel: str, count: int, json: bool) -> int:
    try:
        order = PortOrder(ChannelName.parse(channel).id)
    except ValueError as problem:
        raise Mistake(str(problem)) from None
    first = list(islice(order, count))
    print(json_module.dumps(first) if json else "\n".join(map(str, first)))
    return FINE
