"""A game of your own: the rules are a class, and every player has the same state. Nim: the last match wins.

Here both players run in one program; normally each has its own, on its own machine.
"""

import asyncio
from collections.abc import Sequence
from uuid import uuid4

from broadloom.apps import game


class Nim(game.Game):
    name, title, about, help = "nim", "Nim", "Take one to three matches; the last one wins.", "1, 2 or 3"
    order = game.GameOrder.AGREED

    def __init__(self, players: int = 2) -> None:
        self.roles = {"player": players}

    def begin(self, players: Sequence[str], chance: game.Chance) -> game.State:
        return {"matches": 21, "turn": players[0], "winner": None}

    def apply(self, state: game.State, action: game.Action, by: str, chance: game.Chance) -> game.State:
        count = action.values.get("count")
        if by != state["turn"] or count not in (1, 2, 3) or count > state["matches"]:
            raise game.IllegalActionError("take one to three matches when it is your turn")
        left, other = state["matches"] - count, "player 2" if by == "player 1" else "player 1"
        return {"matches": left, "turn": other, "winner": None if left else by}

    def over(self, state: game.State) -> game.Result | None:
        return game.Result(state["winner"], "the last match is taken") if state["winner"] else None


async def player(channel: str, name: str, role: str) -> None:
    async with game.join(channel, of=Nim(), name=name, role=role) as play:
        async for change in play:
            if isinstance(change, game.Over):
                print(f"{name} sees that {change.result.winner} has won")
                break
            state = play.state
            if state and state["matches"] and state["turn"] == play.role:
                await play.do("take", count=state["matches"] % 4 or 1)  # multiples of four lose


async def main(channel: str) -> None:
    await asyncio.gather(player(channel, "Anna", "player 1"), player(channel, "Ben", "player 2"))


if __name__ == "__main__":
    asyncio.run(main(f"nim/{uuid4()}"))
