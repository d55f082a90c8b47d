"""A game that owns its main loop: thirty pictures a second, and the network in between.

Two players walk along a line and see each other. `acquire` never waits, so the loop never stumbles over the network;
`broadcast_nowait` hands a move over and goes on. Here both players live in one program; two programs look the same.
"""

import time
from uuid import uuid4

import broadloom.sync

FRAMES = 30
FRAME_S = 1 / 30


class Player:
    def __init__(self, channel: broadloom.sync.Channel, place: int, step: int) -> None:
        self.channel = channel
        self.place = place
        self.step = step
        self.others: dict[int, int] = {}

    def frame(self) -> None:
        while message := self.channel.receive_nowait():
            self.others[message.author] = message.json()["place"]
        self.place += self.step
        self.channel.broadcast_nowait(b'{"place":%d}' % self.place)


def main() -> None:
    name = f"game/{uuid4()}"
    with broadloom.sync.connect(name) as left, broadloom.sync.connect(name) as right:
        players = [Player(left, 0, +1), Player(right, 60, -1)]
        for _ in range(FRAMES):
            for player in players:
                player.frame()
            time.sleep(FRAME_S)  # where a real game draws
        time.sleep(0.2)
        for player in players:
            while message := player.channel.receive_nowait():
                player.others[message.author] = message.json()["place"]
            print(f"I stand at {player.place}, and see the other at {next(iter(player.others.values()))}")


if __name__ == "__main__":
    main()
