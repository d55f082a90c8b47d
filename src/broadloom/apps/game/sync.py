"""`Play` for synchronous programs, such as games that own their main loop.

    with game.sync.join("chain/club-42", of=Chain(players=2), name="Anna") as play:
        play.do("place", x=3, y=2)
        while change := play.receive_nowait():
            draw(play.state)

Thread-safe. Callbacks run in Broadloom's own thread and must not block.
"""

from broadloom.apps.game.game import Game, State
from broadloom.apps.game.play import Play as AsyncPlay
from broadloom.apps.game.play import join as async_join
from broadloom.apps.game.table import Table
from broadloom.apps.sync_session import SyncSession, enters
from broadloom.sync.bridge import Attribute, awaits, calls


class Play(SyncSession[AsyncPlay]):
    """The synchronous twin of `game.Play`."""

    _counterpart = AsyncPlay
    game = Attribute[Game]()
    seed = Attribute[str]()
    table = Attribute[Table](in_loop=True)
    role = Attribute[str | None](in_loop=True)
    state = Attribute[State](in_loop=True)
    is_ready = Attribute[bool](in_loop=True)
    state_hash = calls(AsyncPlay.state_hash)
    latest_round = calls(AsyncPlay.latest_round)
    table_at = calls(AsyncPlay.table_at)
    ready = awaits(AsyncPlay.ready)
    do = awaits(AsyncPlay.do)
    moved = awaits(AsyncPlay.moved)
    shot = awaits(AsyncPlay.shot)
    scored = awaits(AsyncPlay.scored)
    typed = awaits(AsyncPlay.typed)
    arrived = awaits(AsyncPlay.arrived)
    departed = awaits(AsyncPlay.departed)
    release = awaits(AsyncPlay.release)
    start = awaits(AsyncPlay.start)
    tell = awaits(AsyncPlay.tell)


join = enters(Play._of, async_join)
