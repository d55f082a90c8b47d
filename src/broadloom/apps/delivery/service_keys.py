"""`ServiceKeys`: everything that desks derive from the authority of their service, so that they need not share it.

Every topic channel has an authority of its own: a ticket for one is worthless on another, and on the directory. All
desks of a service derive the same authorities, channel names and ticket numbers, and can read each other's records of
subscribers, which nobody else can.
"""

import base64
import hashlib
import hmac
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from broadloom.protocol import ChannelName
from broadloom.security import Authority

NONCE_BYTES = 12
SERIAL_BYTES = 8
_SERIAL_MASK = (1 << 63) - 1


class ServiceKeys:
    def __init__(self, authority: Authority, service: str) -> None:
        """Raises `InvalidKeyError` if the authority has no private key."""
        secret = authority.private_key().private_bytes_raw()
        self._service = ChannelName.parse(service)
        self._secret = HKDF(SHA256(), 32, self._service.id, b"broadloom delivery service").derive(secret)
        self._records = AESGCM(self._derived("records", length=32))
        self._authorities: dict[str, Authority] = {}

    def __repr__(self) -> str:
        return f"ServiceKeys({self._service})"

    def channel_name(self, path: str, generation: int) -> str:
        """Two desks that create the same entry at the same time choose the same channel."""
        instance = base64.b32encode(self._derived("channel", path, str(generation), length=20)).decode().lower()
        return f"topic/{instance}"

    def authority(self, channel: str) -> Authority:
        found = self._authorities.get(channel)
        if found is None:
            seed = self._derived("authority", channel, length=32)
            found = self._authorities[channel] = Authority.from_seed(seed, ChannelName.parse(channel).id)
        return found

    def channel_key(self, channel: str) -> str:
        """The shared key of a channel without tickets."""
        return self._derived("key", channel, length=32).hex()

    def serial(self, channel: str, name: str, slot: int, generation: int) -> int:
        """The number of the tickets of one subscriber in one time slot: a desk that withdraws them needs no list."""
        digest = self._derived("serial", channel, name, str(slot), str(generation), length=SERIAL_BYTES)
        return int.from_bytes(digest, "big") & _SERIAL_MASK | 1

    def subscriber_id(self, name: str) -> str:
        """Names the mailbox of a subscriber, without telling who it is."""
        return self._derived("subscriber", name, length=16).hex()

    def encrypt(self, data: bytes, purpose: str) -> bytes:
        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + self._records.encrypt(nonce, data, purpose.encode())

    def decrypt(self, data: bytes, purpose: str) -> bytes:
        """Raises `ValueError`."""
        try:
            return self._records.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], purpose.encode())
        except InvalidTag:
            raise ValueError("the record was not written by a desk of this service") from None

    def _derived(self, *parts: str, length: int) -> bytes:
        text = "\0".join(f"{len(part)}:{part}" for part in parts).encode()
        return hmac.new(self._secret, text, hashlib.sha256).digest()[:length]
