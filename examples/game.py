"""A game that owns its main loop: thirty frames per second, and the network in between.

Two players walk along a line and see each other. `receive_nowait` and `broadcast_nowait` never wait for other peers, so
the frame rate does not depend on the network. Here both players run in one program; normally each has its own.
"""

import time
from uuid import uuid4

import broadloom.sync

FRAMES = 30
FRAME_S = 1 / 30


class Player:
    def __init__(self, channel: broadloom.sync.Channel, position: int, step: int) -> None:
        self.channel = channel
        self.position = position
        self.step = step
        self.others: dict[int, int] = {}

    def frame(self) -> None:
        while message := self.channel.receive_nowait():
            self.others[message.author] = message.json()["position"]
        self.position += self.step
        self.channel.broadcast_nowait(b'{"position":%d}' % self.position)


def main() -> None:
    name = f"game/{uuid4()}"
    with broadloom.sync.connect(name) as left, broadloom.sync.connect(name) as right:
        players = [Player(left, 0, +1), Player(right, 60, -1)]
        for _ in range(FRAMES):
            for player in players:
                player.frame()
            time.sleep(FRAME_S)  # a real game draws here
        time.sleep(0.2)
        for player in players:
            while message := player.channel.receive_nowait():
                player.others[message.author] = message.json()["position"]
            print(f"At {player.position}, the other player at {next(iter(player.others.values()))}")


if __name__ == "__main__":
    main()
