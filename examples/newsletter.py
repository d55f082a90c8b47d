"""A newsletter with tickets: the editor may send, subscribers may only receive, and names are verified.

Normally the owner creates the files with `broadloom authority create` and `broadloom ticket issue`, and gives each
member its ticket. Here everything happens in one program, in memory.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import broadloom
from broadloom import Authority, Role


async def main() -> None:
    name = f"news/{uuid4()}"
    owner = Authority.generate()
    expires_at = datetime.now(UTC) + timedelta(days=30)
    editor_ticket = owner.issue_ticket("Ada", Role.PRODUCER, expires_at)
    reader_ticket = owner.issue_ticket("Bob", Role.CONSUMER, expires_at)

    async with (
        broadloom.connect(name, ticket=editor_ticket) as editor,
        broadloom.connect(name, ticket=reader_ticket) as reader,
    ):
        await editor.broadcast_text("Issue 1: no news is good news.")
        message = await reader.receive(timeout_s=10)
        print(f"{reader.display_name(message.author)} wrote: {message.text}")
        try:
            await reader.broadcast_text("Letter to the editor")
        except broadloom.NotPermittedError as problem:
            print(f"Bob cannot send: {problem}")

    async with broadloom.connect(name, ticket=editor_ticket):
        try:
            await broadloom.connect(name, key="a guess", timeout_s=10)
        except broadloom.RejectedError as problem:
            print(f"A key is rejected: {problem}")


if __name__ == "__main__":
    asyncio.run(main())
