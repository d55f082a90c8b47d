"""As a program, `python -m tests.web.game_lobby CHANNEL COUNT UNREPORTED PROGRAM PICTURE`: a member of a lobby that
registers games, reports all but the first ones as running, and publishes a program. Then it prints a line."""

import asyncio
import sys
from pathlib import Path

import broadloom
from broadloom.apps.game.lobby import Activity, opened
from tests.channel.joined import QUICK

WAITING = "zebra"
"""A game with a player who waits for another one."""


async def main(name: str, count: int, unreported_count: int, program: Path, picture: Path) -> None:
    async with broadloom.connect(name, tls=False, settings=QUICK) as channel, opened(channel) as lobby:
        for number in range(count - 2):
            game = f"board-{number:04}"
            await lobby.register(game, "chain", 2)
            if number >= unreported_count:
                players = {"red": f"Ann{number}", "blue": f"Bob{number}"}
                score = {"red": number, "blue": 1}
                await lobby.report(
                    game, Activity(phase="running", players=players, stand_ins=[], score=score, members=2)
                )
        await lobby.register(WAITING, "gems", 2)
        players = {"red": "Carla", "blue": ""}
        await lobby.report(WAITING, Activity(phase="open", players=players, stand_ins=[], score={}, members=1))
        package = await lobby.publish(program, picture)
        await lobby.register("of the program", package.game, 2)
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    from broadloom.cli.runner import StopSignal, command

    @command("test")
    async def work(stop: StopSignal) -> None:
        stop.interrupt_is_success = True
        channel, count, unreported, program, picture = sys.argv[1:]
        await main(channel, int(count), int(unreported), Path(program), Path(picture))

    sys.exit(work())
