"""Field types of messages: the annotation of a field is its wire format."""

from typing import Annotated

from weft.wire import xdr
from weft.wire.types import Address, BeaconMark, Contact, Have, Standing

CONTACTS_MAX = 256
NEIGHBOURS_MAX = 64
AUTHORS_MAX = 30_000
"""As many as fit into one frame, beside a full sample of contacts."""
CHANNEL_ID_BYTES = 16
CREDENTIAL_BYTES_MAX = 4096

UInt = Annotated[int, xdr.UINT]
Hyper = Annotated[int, xdr.HYPER]
Bool = Annotated[bool, xdr.BOOL]
Text = Annotated[str, xdr.string()]
CredentialBytes = Annotated[bytes, xdr.opaque(CREDENTIAL_BYTES_MAX)]
ChannelId = Annotated[bytes, xdr.fixed_opaque(CHANNEL_ID_BYTES)]
AddressField = Annotated[Address, xdr.ADDRESS]
ContactField = Annotated[Contact, xdr.CONTACT]
OptionalContact = Annotated[Contact | None, xdr.optional(xdr.CONTACT)]
Contacts = Annotated[tuple[Contact, ...], xdr.array(xdr.CONTACT, CONTACTS_MAX)]
Peers = Annotated[tuple[int, ...], xdr.array(xdr.HYPER, NEIGHBOURS_MAX)]
Haves = Annotated[tuple[Have, ...], xdr.array(xdr.HAVE, AUTHORS_MAX)]
Standings = Annotated[tuple[Standing, ...], xdr.array(xdr.STANDING, AUTHORS_MAX)]
OptionalBeacon = Annotated[BeaconMark | None, xdr.optional(xdr.BEACON_MARK)]
