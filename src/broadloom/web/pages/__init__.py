"""The pages, one file each. A page is a function that builds it from `Sources`."""

from broadloom.web.pages import (
    auction,
    cluster,
    conversations,
    fabric,
    games,
    layout,
    operator,
    replay,
    review,
    rules,
    subscriptions,
    switch,
    tables,
    topics,
    traffic,
)
from broadloom.web.sources import Sources

PAGES = (
    layout.PageSpec("/", "Fabric", fabric.build),
    layout.PageSpec("/cluster", "Cluster", cluster.build),
    layout.PageSpec("/traffic", "Traffic", traffic.build),
    layout.PageSpec("/conversations", "Conversations", conversations.build),
    layout.PageSpec("/rules", "Rules", rules.build),
    layout.PageSpec("/tables", "Audit and tables", tables.build),
    layout.PageSpec("/replay", "Replay", replay.build),
    layout.PageSpec("/switch", "Switch", switch.build, is_application=True),
    layout.PageSpec("/games", "Games", games.build, is_application=True),
    layout.PageSpec("/review", "Review", review.build, is_application=True),
    layout.PageSpec("/topics", "Topics", topics.build, is_application=True),
    layout.PageSpec("/topics/mine", "My subscriptions", subscriptions.build, parent="/topics"),
    layout.PageSpec("/topics/operator", "Operator", operator.build, parent="/topics"),
    layout.PageSpec("/auction", "Auction", auction.build, is_application=True),
)


def register(sources: Sources) -> None:
    for page in PAGES:
        layout.register(page, PAGES, sources)
