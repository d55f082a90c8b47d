"""Field types of messages: the annotation of a field is its wire format."""

from typing import Annotated

from broadloom.wire import xdr
from broadloom.wire.types import Address, AuthorState, BeaconId, PeerInfo, TreePosition

PEER_INFOS_MAX = 256
NEIGHBORS_MAX = 64
AUTHORS_MAX = 30_000
"""As many as fit into one frame together with a full peer sample."""
CHANNEL_ID_BYTES = 16
CREDENTIAL_BYTES_MAX = 4096
PROOF_BYTES_MAX = 256
PART_BYTES_MAX = 65536
"""Data in one frame of a direct connection. Larger requests and replies are sent in parts, so that small ones get
through in between."""
RECORD_BYTES_MAX = 2048
RECORD_SIGNATURE_BYTES_MAX = 64
ROSTER_RECORDS_MAX = 64
"""Records in one frame."""
BUCKET_COUNT = 64
MEMBERS_MAX = 20_000
MEMBER_NAME_BYTES_MAX = 64
LAYERS_MAX = 32
REPORTS_MAX = 64
"""Delivery reports in one frame."""
MISSED_ENDS_MAX = 16
"""First and last number of each range."""
OWNER_DOCUMENT_BYTES_MAX = 1_000_000
"""A card has less than 4 kB; a list of revoked tickets 37 bytes for each."""
OWNER_HASH_BYTES = 32

UInt = Annotated[int, xdr.UINT]
Hyper = Annotated[int, xdr.HYPER]
Bool = Annotated[bool, xdr.BOOL]
Text = Annotated[str, xdr.string()]
CredentialBytes = Annotated[bytes, xdr.opaque(CREDENTIAL_BYTES_MAX)]
ProofBytes = Annotated[bytes, xdr.opaque(PROOF_BYTES_MAX)]
PartBytes = Annotated[bytes, xdr.opaque(PART_BYTES_MAX)]
ChannelId = Annotated[bytes, xdr.fixed_opaque(CHANNEL_ID_BYTES)]
OwnerDocumentBytes = Annotated[bytes, xdr.opaque(OWNER_DOCUMENT_BYTES_MAX)]
DocumentHash = Annotated[bytes, xdr.fixed_opaque(OWNER_HASH_BYTES)]
AddressField = Annotated[Address, xdr.ADDRESS]
PeerInfoField = Annotated[PeerInfo, xdr.PEER_INFO]
OptionalPeerInfo = Annotated[PeerInfo | None, xdr.optional(xdr.PEER_INFO)]
PeerInfos = Annotated[tuple[PeerInfo, ...], xdr.array(xdr.PEER_INFO, PEER_INFOS_MAX)]
PeerIds = Annotated[tuple[int, ...], xdr.array(xdr.HYPER, NEIGHBORS_MAX)]
AuthorStates = Annotated[tuple[AuthorState, ...], xdr.array(xdr.AUTHOR_STATE, AUTHORS_MAX)]
TreePositions = Annotated[tuple[TreePosition, ...], xdr.array(xdr.TREE_POSITION, AUTHORS_MAX)]
OptionalBeaconId = Annotated[BeaconId | None, xdr.optional(xdr.BEACON_ID)]
