"""`AsyncClosable`: the base of what a program opens and closes with `async with`, or `aclose`."""

from abc import ABC, abstractmethod
from typing import Self


class AsyncClosable(ABC):
    @abstractmethod
    async def aclose(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()
