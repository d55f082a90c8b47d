"""`AsyncClosable`: the base of what a program opens and closes with `async with`, or `aclose`."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import Self

log = logging.getLogger("broadloom")


class AsyncClosable(ABC):
    @abstractmethod
    async def aclose(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()


async def close_all(*closing: Awaitable[None]) -> None:
    """At the same time, and all of them if some fail. Raises the first problem, and logs the others."""
    results = await asyncio.gather(*closing, return_exceptions=True)
    problems = sorted((each for each in results if each is not None), key=lambda each: not isinstance(each, Exception))
    for problem in problems[1:]:
        log.error("not closed: %s", problem, exc_info=problem)
    if problems:
        raise problems[0]
