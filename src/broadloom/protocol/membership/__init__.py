"""Membership: discovery, joining, repair and merging, after SWAN.

SWAN (small-world wide area networking) keeps the fabric a random regular graph: every peer has `degree` links,
newcomers are pinned onto random edges, and free slots are refilled. The peer cache is HyParView's passive view.
"""
