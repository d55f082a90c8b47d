"""Opening the headers of received messages, and undoing what rules of the author did to the data."""

from collections.abc import Callable, Iterator, Sequence

from broadloom.channel.encodings import undo_encodings
from broadloom.protocol.events import Batch
from broadloom.security.sealing import SealingPrivateKey
from broadloom.wire import WireError
from broadloom.wire.message_headers import Envelope, split_headers
from broadloom.wire.payload_kind import FLAGS_MASK, HAS_HEADERS, LAYER_SHIFT


def open_envelopes(
    batch: Batch,
    on_malformed: Callable[[Batch, int, WireError], None],
    keys: Sequence[SealingPrivateKey] = (),
    bytes_max: int = 0,
) -> Iterator[Batch]:
    """The same messages with their headers apart, in several batches if some in between are malformed. What is
    compressed grows to at most `bytes_max`."""
    start = 0
    data: list[bytes] = []
    envelopes: list[Envelope] = []

    def opened() -> Batch:
        first, kind = batch.first_sequence + start, batch.kind & ~FLAGS_MASK
        return Batch(batch.author, first, tuple(data), batch.hops, kind, tuple(envelopes))

    for index, payload in enumerate(batch.data):
        try:
            if batch.kind & FLAGS_MASK != HAS_HEADERS:
                raise WireError(f"unknown flags in kind {batch.kind:#x}")
            envelope, body = split_headers(payload)
            if envelope.headers.encodings:
                envelope, body = undo_encodings(envelope, body, keys, bytes_max)
                if envelope.remaining and batch.kind >> LAYER_SHIFT:
                    raise WireError("encrypted for others: a layer cannot read it")
        except WireError as problem:
            if data:
                yield opened()
            start, data, envelopes = index + 1, [], []
            on_malformed(batch, index, problem)
        else:
            envelopes.append(envelope)
            data.append(body)
    if data:
        yield opened()
