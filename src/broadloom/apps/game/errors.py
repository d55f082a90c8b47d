"""The exceptions of games. Each message names the remedy."""

from broadloom.errors import BroadloomError


class GameError(BroadloomError):
    """Base class of the exceptions of games."""


class IllegalActionError(GameError):
    """The rules do not allow this action now. It has no effect at any player."""


class RoleTakenError(GameError):
    """Another player has this role, or all roles are taken."""


class NoRoleError(GameError):
    """The game has no such role."""


class NoGameError(GameError):
    """The lobby has no game with this name, or the game cannot be reached."""
