"""What rules cost: `python -m tools.rules_cost`.

The time of one message through rules of which none holds, without a network; and the rate of broadcasts from one
author to one reader in the same process, alternately without rules and with 100.
"""

import asyncio
import json
import statistics
import time
from typing import Any
from uuid import uuid4

import broadloom
from broadloom.channel.outgoing import Outgoing
from broadloom.rules import Rules, parse

ROUNDS = 9
MESSAGES = 20_000
HEADERS = {"subject": "weekly report", "to": "sales@example.com, support@example.com"}
FIELDS = ("subject", "to", "topic", "content-type", "header.origin")


def rules_of(count: int) -> Rules:
    """Rules on headers that hold for no message of this benchmark."""
    lines = [f'IF {{ {FIELDS[n % len(FIELDS)]}("word-{n}") AND size > {n} }} THEN {{ refuse }}' for n in range(count)]
    return Rules(parse("\n".join(lines)))


def microseconds_per_message(rules: Rules) -> float:
    """The best of several rounds: other programs only add to it."""

    class Nowhere:
        name = "office/hq"
        _observer = None

    where: Any = Nowhere()

    async def measure() -> float:
        best = float("inf")
        for _ in range(ROUNDS):
            started_at = time.process_time()
            for _ in range(2000):
                await rules.apply(Outgoing(b"data", channel="office/hq", topic="news", headers=HEADERS), where)
            best = min(best, (time.process_time() - started_at) / 2000)
        return best * 1e6

    return asyncio.run(measure())


async def broadcasts_per_s(rules: Rules | None) -> float:
    name = f"bench/{uuid4().hex}"
    async with (
        broadloom.connect(name, tls=False, rules=rules) as author,
        broadloom.connect(name, tls=False) as reader,
    ):
        reader.on_batch(lambda _batch: None)
        await author.wait_for_peers(20)
        started_at = time.process_time()
        for _ in range(MESSAGES):
            await author.broadcast(b"data")
        return MESSAGES / (time.process_time() - started_at)


def main() -> None:
    result: dict[str, Any] = {
        f"microseconds, {count} rules": round(microseconds_per_message(rules_of(count)), 2) for count in (0, 1, 10, 100)
    }
    hundred = rules_of(100)
    rates: dict[str, list[float]] = {"without rules": [], "with 100 rules": []}
    for _ in range(ROUNDS):
        rates["without rules"].append(asyncio.run(broadcasts_per_s(None)))
        rates["with 100 rules"].append(asyncio.run(broadcasts_per_s(hundred)))
    result |= {f"broadcasts per CPU second, {name}": round(statistics.median(each)) for name, each in rates.items()}
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
