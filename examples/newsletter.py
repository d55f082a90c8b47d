"""A newsletter with tickets: the editor may speak, subscribers may only listen, and everyone can prove who wrote.

In life the owner makes the files once, with `broadloom key --owner` and `broadloom ticket issue`, and gives each member
its ticket. Here all of it happens in one program, in memory.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import broadloom
from broadloom import Authority, Role


async def main() -> None:
    name = f"news/{uuid4()}"
    owner = Authority.generate()
    end = datetime.now(UTC) + timedelta(days=30)
    to_edit = owner.issue_ticket("Ada", Role.PRODUCER, end)
    to_read = owner.issue_ticket("Bob", Role.CONSUMER, end)

    async with broadloom.connect(name, ticket=to_edit) as editor, broadloom.connect(name, ticket=to_read) as reader:
        await editor.broadcast_text("Issue 1: no news is good news.")
        message = await reader.receive(timeout_s=10)
        print(f"{reader.display_name(message.author)} wrote: {message.text}")
        try:
            await reader.broadcast_text("Letter to the editor")
        except broadloom.NotPermittedError as problem:
            print(f"Bob may not write: {problem}")

    async with broadloom.connect(name, ticket=to_edit):
        try:
            await broadloom.connect(name, key="a guess", timeout_s=10)
        except broadloom.RejectedError as problem:
            print(f"no way in with a key: {problem}")


if __name__ == "__main__":
    asyncio.run(main())
