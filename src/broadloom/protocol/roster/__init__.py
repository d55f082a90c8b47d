"""The members of the channel: a link-state roster, as in OSPF (RFC 2328).

Each member signs a record that lists its own neighbors, and floods it when they change. A member is present while it
can be reached over edges that both ends list, so no one can remove a member but its own neighbors together, and a
partition is seen as one. Nothing is sent while nothing changes: digests of the roster ride on heartbeats.
"""
