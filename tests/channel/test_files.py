"""Files as messages: content, hash and name."""

import random
from pathlib import Path

import pytest

import broadloom
from broadloom.protocol import Tuning
from broadloom.protocol.events import Message
from broadloom.wire.file_payload import HASH_BYTES, decode_file, encode_file
from broadloom.wire.payload_kind import PayloadKind
from broadloom.wire.xdr import string
from tests.channel.joined import connected_channels
from tests.support import eventually


@pytest.mark.parametrize("size", [0, 1, 1000, 70_000, (5 << 20) + 1])
async def test_file_arrives_unchanged(size: int, tmp_path: Path) -> None:
    path = tmp_path / "süß und klein.bin"
    path.write_bytes(random.Random(size).randbytes(size))
    progress: list[tuple[int, int]] = []

    async with connected_channels(2) as (author, reader):
        await author.broadcast(b"before")
        sequence = await author.broadcast_file(path, on_progress=lambda done, total: progress.append((done, total)))
        await author.broadcast(b"after")
        assert (await reader.receive(20)).file is None
        message = await reader.receive(20)
        assert message.sequence == sequence
        assert message.kind == PayloadKind.FILE
        assert message.file == broadloom.File("süß und klein.bin", path.read_bytes())
        assert (await reader.receive(20)).text == "after"
    assert progress == sorted(set(progress))
    assert len({total for _, total in progress}) == 1
    assert progress[-1][0] == progress[-1][1] >= size


async def test_broadcast_file_raises_error_for_invalid_arguments(tmp_path: Path) -> None:
    small = Tuning(discovery_retry_s=0.1, leave_linger_s=0.05, message_bytes_max=100_000)

    async with connected_channels(2, settings=small) as (author, reader):
        for size in (99_999, 100_000, 100_001, 64 << 20):  # the first two exceed the limit with their name and hash
            (tmp_path / "large").write_bytes(bytes(size))
            with pytest.raises(broadloom.MessageTooLargeError, match="at most 100,000 are allowed"):
                await author.broadcast_file(tmp_path / "large")
        with pytest.raises(FileNotFoundError):
            await author.broadcast_file(str(tmp_path / "missing"))
        with pytest.raises(IsADirectoryError):
            await author.broadcast_file(tmp_path)
        (tmp_path / "good").write_bytes(b"good")
        with pytest.raises(ValueError, match="from 0 to 255"):
            await author.broadcast_file(tmp_path / "good", priority=1000)
        with pytest.raises(ValueError, match="must be greater than 0"):
            await author.broadcast_file(tmp_path / "good", ttl_s=0)
        assert await author.broadcast_file(str(tmp_path / "good")) == 1, "nothing of all that cost a number"
        assert (await reader.receive(20)).file == broadloom.File("good", b"good")
        await author.leave()
        with pytest.raises(broadloom.NotConnectedError):
            await author.broadcast_file(tmp_path / "good")


async def test_file_name_that_is_not_utf8_is_replaced(tmp_path: Path) -> None:
    """File names are bytes. The file is sent even if its name is not UTF-8."""
    path = tmp_path / "caf\udce9.txt"
    path.write_bytes(b"content")

    async with connected_channels(2) as (author, reader):
        await author.broadcast_file(path)
        file = (await reader.receive(20)).file
        assert file is not None
        assert (file.name, file.content) == ("caf\N{REPLACEMENT CHARACTER}.txt", b"content")


def test_damaged_file_raises_error_when_accessed() -> None:
    whole = encode_file("report.txt", b"the content")
    assert Message(1, 1, whole, 1, PayloadKind.FILE).file == broadloom.File("report.txt", b"the content")
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        message = Message(1, 1, bytes(damaged), 1, PayloadKind.FILE)
        try:
            file = message.file
        except ValueError:
            continue
        assert file is not None
        assert file.content == b"the content"
        assert file.name != "report.txt", f"byte {place} is not looked at"
    for cut in range(len(whole)):
        with pytest.raises(ValueError, match=r"damaged|not a file"):
            assert Message(1, 1, whole[:cut], 1, PayloadKind.FILE).file
    assert Message(1, 1, whole, 1).file is None, "a message like any other"


async def test_damaged_file_does_not_stop_reader() -> None:
    async with connected_channels(2) as (author, reader):
        data = encode_file("report.txt", b"the content")[:-1] + b"!"
        await author._broadcast_large(data, PayloadKind.FILE, 1, None)
        await author.broadcast(b"after")
        await eventually(lambda: reader.unread_count == 2)
        message = await reader.receive(5)
        with pytest.raises(ValueError, match=r"the file 'report\.txt' is damaged"):
            assert message.file
        assert (await reader.receive(5)).text == "after"


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("../../etc/passwd", "passwd"),
        ("/etc/passwd", "passwd"),
        ("C:\\Windows\\system.ini", "system.ini"),
        ("C:autoexec.bat", "autoexec.bat"),
        ("a/b\\c", "c"),
        ("dir/", "dir"),
        ("..", "unnamed"),
        ("a/..", "unnamed"),
        (".", "unnamed"),
        ("", "unnamed"),
        ("/", "unnamed"),
    ],
)
def test_file_name_never_contains_a_directory(name: str, bare: str) -> None:
    """Whether the frame was made by `encode_file` or by hand."""
    assert decode_file(encode_file(name, b"x")).name == bare
    out: list[bytes] = []
    string(255).pack(name, out)
    by_hand = b"".join(out) + encode_file("x", b"x")[-HASH_BYTES - 1 :]
    assert decode_file(by_hand) == broadloom.File(bare, b"x")
