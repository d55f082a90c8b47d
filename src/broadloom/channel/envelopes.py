"""Opening the headers of received messages."""

from collections.abc import Callable, Iterator

from broadloom.protocol.events import Batch
from broadloom.wire import WireError
from broadloom.wire.message_headers import Envelope, split_headers
from broadloom.wire.payload_kind import CONTENT_MASK, FLAGS_MASK, HAS_HEADERS


def open_envelopes(batch: Batch, on_malformed: Callable[[Batch, int, WireError], None]) -> Iterator[Batch]:
    """The same messages with their headers apart, in several batches if some in between are malformed."""
    start = 0
    data: list[bytes] = []
    envelopes: list[Envelope] = []

    def opened() -> Batch:
        first, kind = batch.first_sequence + start, batch.kind & CONTENT_MASK
        return Batch(batch.author, first, tuple(data), batch.hops, kind, tuple(envelopes))

    for index, payload in enumerate(batch.data):
        try:
            if batch.kind & FLAGS_MASK != HAS_HEADERS:
                raise WireError(f"unknown flags in kind {batch.kind:#x}")
            envelope, body = split_headers(payload)
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
