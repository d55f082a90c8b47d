"""Who may take part, and whose word it is: keys, tickets, certificates, TLS contexts and signatures.

The rule of this layer: nobody is a member whom the channel's certificate authority has not signed, and a peer id is a
hash of the key that its owner proves to hold. No sockets here: `net` wraps its lines with the contexts of a
`Membership`. No secret stands in any text that this layer makes, but for the key files themselves.
"""

from weft.security.authority import Authority
from weft.security.errors import BadKey, BadKeyFile
from weft.security.keys import new_key
from weft.security.membership import Membership
from weft.security.refusals import refusal_of
from weft.security.revocation import RevocationList, revoke
from weft.security.ticket import Ticket

__all__ = [
    "Authority",
    "BadKey",
    "BadKeyFile",
    "Membership",
    "RevocationList",
    "Ticket",
    "new_key",
    "refusal_of",
    "revoke",
]
