"""The findings of the audit and the columns of their table."""

from broadloom.pipeline.table import CHANNEL, COUNT, FLAG, ID, TEXT, TIME, TableColumn
from broadloom.record.arrow_import import pa

FINDINGS = {
    "missing": "due to the receiver, but neither delivered nor reported as missed.",
    "duplicate": "delivered to the application more than once.",
    "out_of_order": "delivered after a later message of its author, or after it was reported as missed.",
    "reply_before_parent": "delivered before the message it replies to.",
    "receiver_not_member": "delivered to a peer that had no link yet, or had left.",
    "delivered_to_author": "delivered to its own author.",
    "never_sent": "delivered, but its author recorded no such message.",
    "reported_missed": "not delivered, and reported as missed to the application: no violation.",
}

NON_VIOLATIONS = ("reported_missed",)

COLUMNS = (
    CHANNEL,
    TableColumn("finding", TEXT, "One of " + ", ".join(f"`{name}`" for name in FINDINGS) + "."),
    TableColumn("is_violation", FLAG, "Whether it breaks a guarantee."),
    TableColumn("author", ID, "Author of the message."),
    TableColumn("sequence", COUNT, "Sequence number of the message."),
    TableColumn("receiver", ID, "Peer that got the message, or should have."),
    TableColumn("event_time", TIME, "Time of the delivery or report; for `missing`, of the sending."),
    TableColumn("detail", TEXT, "Explanation."),
)
SCHEMA = pa.schema([pa.field(each.name, each.type) for each in COLUMNS])
