"""Rules for outgoing messages: a private key is refused, a plan for outsiders is encrypted for the holder of a key.

Normally the rules are in a file, `broadloom.rules.load("out.rules")`, and the keys come from `broadloom rules key`.
"""

import asyncio
import tempfile
from pathlib import Path
from uuid import uuid4

import broadloom
from broadloom.rules import Rules, SealingPrivateKey, parse

RULES = """
RULE "no keys" IF { matches(/BEGIN [A-Z ]*PRIVATE KEY/) } THEN { refuse "a private key" }
IF { to("com") } THEN { copy "backup"; redact emails; encrypt for "com.pub" }
"""


async def main(directory: Path) -> None:
    name, key = f"office/{uuid4()}", SealingPrivateKey.generate()
    key.public.save(directory / "com.pub")
    rules = Rules(parse(RULES), directory=directory)
    async with (
        broadloom.connect(name, rules=rules) as author,
        broadloom.connect(name, private_keys=[key]) as partner,
        broadloom.connect(name) as stranger,
    ):
        try:
            await author.broadcast_text("-----BEGIN RSA PRIVATE KEY-----")
        except broadloom.NotSentError as problem:
            print(f"Not sent: {problem}")
        await author.broadcast_text("Plan B: ask ada@example.com", headers={"to": "com"})
        print("The partner reads:", (await partner.receive(timeout_s=10)).text)
        print("A stranger cannot:", (await stranger.receive(timeout_s=10)).is_sealed)
        [copy] = (directory / "backup").iterdir()
        print("The backup has:", copy.read_text())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))
