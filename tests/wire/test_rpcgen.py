"""A C program generated from `broadloom.x` by rpcgen reads and writes the same bytes."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.wire_strategies import ALL, MESSAGES, frame_of, frame_with, messages_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "protocol" / "broadloom.x"

PROGRAM = r"""
/* Reads frames, decodes each with the code of rpcgen, encodes it again and writes it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "broadloom.h"

static char in[FRAME_BYTES_MAX], out[FRAME_BYTES_MAX];

int main(void)
{
    unsigned char *head = (unsigned char *) in;
    while (fread(in, 1, 4, stdin) == 4) {
        u_int length = (u_int) head[0] << 24 | head[1] << 16 | head[2] << 8 | head[3];
        broadloom_frame frame;
        XDR source, target;
        if (length > sizeof in - 4 || fread(in + 4, 1, length, stdin) != length)
            return 2;
        memset(&frame, 0, sizeof frame);
        xdrmem_create(&source, in, length + 4, XDR_DECODE);
        if (!xdr_broadloom_frame(&source, &frame) || xdr_getpos(&source) != length + 4)
            return 3;
        xdrmem_create(&target, out, sizeof out, XDR_ENCODE);
        if (!xdr_broadloom_frame(&target, &frame))
            return 4;
        fwrite(out, 1, xdr_getpos(&target), stdout);
        xdr_free((xdrproc_t) xdr_broadloom_frame, (char *) &frame);
    }
    return 0;
}
"""


def rpc_flags() -> list[str]:
    """Compiler flags for the RPC library. Without pkg-config it may still be part of the C library."""
    found = shutil.which("pkg-config") and subprocess.run(
        ["pkg-config", "--cflags", "--libs", "libtirpc"], capture_output=True, check=False, text=True
    )
    return found.stdout.split() if found and found.returncode == 0 else []


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled program."""
    for tool in ("rpcgen", "gcc"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")
    place = tmp_path_factory.mktemp("rpcgen")
    flags = rpc_flags()
    (place / "probe.c").write_text("#include <rpc/rpc.h>\n")
    probe = subprocess.run(["gcc", "-fsyntax-only", "probe.c", *flags], cwd=place, capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("rpc/rpc.h is not installed (package libtirpc-dev)")
    shutil.copy(DOCUMENT, place / "broadloom.x")
    (place / "echo.c").write_text(PROGRAM)
    for command in (
        ["rpcgen", "-h", "-o", "broadloom.h", "broadloom.x"],
        ["rpcgen", "-c", "-o", "broadloom_xdr.c", "broadloom.x"],
        ["gcc", "-O1", "-w", "-o", "echo", "echo.c", "broadloom_xdr.c", *flags],
    ):
        run = subprocess.run(command, cwd=place, capture_output=True, check=False, text=True)
        assert (run.returncode, run.stderr) == (0, ""), f"{' '.join(command)}\n{run.stderr}"
    return place / "echo"


def echoed(program: Path, frames: list[bytes]) -> bytes:
    run = subprocess.run([program], input=b"".join(frames), capture_output=True, check=False, timeout=20)
    assert run.returncode == 0, f"the C program exited with {run.returncode}"
    return run.stdout


@pytest.mark.parametrize("number", sorted(ALL), ids=lambda number: ALL[number].__name__)
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_c_program_echoes_every_message(echo: Path, number: int, data: st.DataObject) -> None:
    # Many messages per run: starting the program takes longer than they do.
    made: list[Any] = data.draw(st.lists(messages_of(ALL[number]), min_size=1, max_size=20))
    frames = [frame_of(each) for each in made]
    assert echoed(echo, frames) == b"".join(frames)


@settings(max_examples=20, deadline=None)
@given(made=st.lists(MESSAGES, max_size=20))
def test_c_program_echoes_any_stream(echo: Path, made: list[Any]) -> None:
    frames = [frame_of(each) for each in made]
    assert echoed(echo, frames) == b"".join(frames)


def test_c_program_rejects_unknown_message(echo: Path) -> None:
    # A program that accepts anything would pass the tests above.
    run = subprocess.run([echo], input=frame_with(max(ALL) + 1, b""), capture_output=True, check=False, timeout=20)
    assert run.returncode == 3
