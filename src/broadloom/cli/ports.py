"""`broadloom ports`: where a channel's peers listen."""

import json as json_module
from itertools import islice

from broadloom.cli.exit_codes import SUCCESS, UsageError
from broadloom.cli.runner import run_reporting_errors
from broadloom.protocol import ChannelName
from broadloom.protocol.channel_name import PortOrder


def ports(channel: str, count: int, *, json: bool) -> int:
    return run_reporting_errors("ports", lambda: _ports(channel, count, json))


def _ports(channel: str, count: int, json: bool) -> int:
    try:
        order = PortOrder(ChannelName.parse(channel).id)
    except ValueError as problem:
        raise UsageError(str(problem)) from None
    first = list(islice(order, count))
    print(json_module.dumps(first) if json else "\n".join(map(str, first)))
    return SUCCESS
