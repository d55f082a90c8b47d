"""Authentication: keys, tickets, certificates, TLS contexts and signatures.

A peer is a member if the channel's certificate authority has signed its certificate, directly or through a ticket. Its
peer id is a hash of its session key and ticket, so no other peer can claim it. This layer has no sockets: `transport`
uses the contexts of a `PeerCredentials`. Secrets appear in key files only, never in an error message or a `repr`.
"""

from broadloom.errors import InvalidKeyError, InvalidKeyFileError
from broadloom.security.authority import Authority
from broadloom.security.card import SignedCard
from broadloom.security.credentials import PeerCredentials
from broadloom.security.keys import generate_key
from broadloom.security.owner import ChannelOwner, check_card, load_card
from broadloom.security.revocation import RevocationList, new_revocation_list, revoke_tickets
from broadloom.security.ticket import Ticket
from broadloom.security.tls_context import APPLICATION_PROTOCOL, explain_as_initiator, former_member, reject_reason_for

__all__ = [
    "APPLICATION_PROTOCOL",
    "Authority",
    "ChannelOwner",
    "InvalidKeyError",
    "InvalidKeyFileError",
    "PeerCredentials",
    "RevocationList",
    "SignedCard",
    "Ticket",
    "check_card",
    "explain_as_initiator",
    "former_member",
    "generate_key",
    "load_card",
    "new_revocation_list",
    "reject_reason_for",
    "revoke_tickets",
]
