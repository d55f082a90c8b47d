"""The two TLS contexts of a peer: one to be called, one to call. TLS 1.3, with certificates on both sides.

Certificates are good by who signed them, not by host names: peers have none. What a caller asks for by name (SNI) is
the channel, so that a listener of another channel can say so; otherwise all that both would see is an authority that
they do not know, and nobody could tell a wrong key from a wrong port.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from weft.security.leaf import Leaf
from weft.security.pem_files import pem

_OPEN_FILES = "/proc/self/fd/"


def make_contexts(authority: x509.Certificate, leaf: Leaf, server_name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For the one who is called, and for the one who calls."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusted = authority.public_bytes(Encoding.DER)
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=trusted)
    _load_leaf(leaf, server, client)
    # A resumed session would do without certificates, and a ticket may have been withdrawn meanwhile.
    server.num_tickets = 0
    _answer_only_to(server_name, server)
    return server, client


def _answer_only_to(expected: str, server: ssl.SSLContext) -> None:
    def on_name(_: ssl.SSLObject | ssl.SSLSocket, asked: str | None, __: ssl.SSLContext) -> int | None:
        return None if asked == expected else ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    server.sni_callback = on_name


def _load_leaf(leaf: Leaf, *contexts: ssl.SSLContext) -> None:
    with _as_file(pem(leaf.key, *leaf.chain)) as path:
        for context in contexts:
            context.load_cert_chain(path)


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """`ssl` reads keys from files only, so ours is one for a moment: in memory, where the system can do that (Linux),
    because a file that a crash leaves behind would let its finder into the channel. Elsewhere it is one that only we
    can read, and it is gone at once."""
    file, path = _open_in_memory() or tempfile.mkstemp(prefix="weft-")
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(content)
            stream.flush()
            yield path
    finally:
        if not path.startswith(_OPEN_FILES):
            Path(path).unlink()


def _open_in_memory() -> tuple[int, str] | None:
    if not hasattr(os, "memfd_create") or not Path(_OPEN_FILES).exists():
        return None
    file = os.memfd_create("weft")
    return file, f"{_OPEN_FILES}{file}"
