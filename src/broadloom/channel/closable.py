"""`AsyncClosable`: the base of what a program opens and closes with `async with`, or `aclose`."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import Self


class AsyncClosable(ABC):
    @abstractmethod
    async def aclose(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()


async def close_all(*closing: Awaitable[None]) -> None:
    """At the same time, and all of them if some fail. Raises the first problem."""
    problems = [each for each in await asyncio.gather(*closing, return_exceptions=True) if each is not None]
    if problems:
        raise problems[0]
