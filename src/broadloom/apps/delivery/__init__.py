"""An information delivery service: a directory of topics, subscriptions, metering and bills, without a server.

The plan of the package (docs/delivery.md is for its users):

- **Directory** (`entry.py`, `directory.py`): a channel of its own, with tickets of the operator. Every entry is a
  signed channel card in a mailbox of the desks, of which every member has a copy, and which keepers store. An entry
  has one topic, or is a category with one channel for several topics. `Directory` is the tree and the search.
- **Desk** (`desk.py`): answers direct requests. `entitlements.py` decides, without IO, who may create, subscribe and
  produce; `subscribers.py` is what desks remember, a map that merges; `service_keys.py` derives the authority of each
  topic channel, so that any desk can issue and revoke any ticket and a ticket for one topic is worthless on others.
- **Membership** (`membership.py`): keeps a program on the channel of an entry: asks a desk, joins, renews the ticket by
  joining again before leaving, and says what it waits for.
- **Feed** (`feed.py`): the items of many topics and channels. `intake.py` decides, without IO, what counts as an item:
  its producer is proven, and a message that arrives twice during a renewal counts once.
- **Producer** (`producer.py`): publishes items and ads.
- **Meter** (`meter.py`, `identification.py`): subscribers identify themselves by direct requests, authenticated with
  their tickets; meters write that to a tape. The tables `sessions`, `invoices`, `ad_broadcasts` and `ad_fees` of the
  pipeline are the bills.

`service.py` is what a program uses: `delivery.join(...)`; `sync.py` is its synchronous twin. `messages.py` has the
requests and replies, `demo_news.py` the service that `broadloom demo` shows. The web site is in `broadloom.web`.
"""

from broadloom.apps.delivery.desk import Desk
from broadloom.apps.delivery.directory import Directory, Topic
from broadloom.apps.delivery.entry import Entry, Offer
from broadloom.apps.delivery.errors import DeliveryError, DeniedError, NoDeskError, NoTopicError
from broadloom.apps.delivery.feed import Feed
from broadloom.apps.delivery.item import Item
from broadloom.apps.delivery.meter import Meter
from broadloom.apps.delivery.producer import Producer
from broadloom.apps.delivery.service import Service, join
from broadloom.apps.delivery.subscribers import Account, Subscription

__all__ = [
    "Account",
    "DeliveryError",
    "DeniedError",
    "Desk",
    "Directory",
    "Entry",
    "Feed",
    "Item",
    "Meter",
    "NoDeskError",
    "NoTopicError",
    "Offer",
    "Producer",
    "Service",
    "Subscription",
    "Topic",
    "join",
]
