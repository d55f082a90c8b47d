"""Who may take part, and whose word it is: keys, tickets, certificates, TLS contexts and signatures.

The rule of this layer: nobody is a member whom the channel's certificate authority has not signed, and a peer id is a
hash of the key that its owner proves to hold. No sockets here: `net` wraps its lines with the contexts of a
`Membership`. No secret stands in any text that this layer makes, but for the key files themselves.
"""

from broadloom.errors import InvalidKeyError, InvalidKeyFileError
from broadloom.security.authority import Authority
from broadloom.security.credentials import PeerCredentials
from broadloom.security.keys import generate_key
from broadloom.security.revocation import RevocationList, revoke_tickets
from broadloom.security.ticket import Ticket
from broadloom.security.tls_context import reject_reason_for

__all__ = [
    "Authority",
    "InvalidKeyError",
    "InvalidKeyFileError",
    "PeerCredentials",
    "RevocationList",
    "Ticket",
    "generate_key",
    "reject_reason_for",
    "revoke_tickets",
]
