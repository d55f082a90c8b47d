"""What an audit can find, and the row that tells of it."""

from broadloom.pipeline.table import COUNT, FLAG, ID, TEXT, TIME, TableColumn
from broadloom.record.arrow_import import pa

FINDINGS = {
    "missing": "It was owed to the receiver, and was neither delivered nor told as missed.",
    "double": "The receiver's application got it more than once.",
    "out_of_order": "It was delivered after a later one of its author, or after it was told as missed.",
    "before_parent": "It was delivered before the message that it responds to.",
    "not_present": "It was delivered to somebody that had no link to anybody yet, or had left.",
    "own": "It was delivered to its own author.",
    "never_sent": "It was delivered, but its author, which recorded, sent no such message.",
    "missed_reported": "It was not delivered, and the application was told so: no promise is broken.",
}

NON_VIOLATIONS = ("missed_reported",)

COLUMNS = (
    TableColumn("channel", TEXT, "First 16 digits of the channel's id."),
    TableColumn("finding", TEXT, "What it is: " + ", ".join(FINDINGS) + "."),
    TableColumn("guilty", FLAG, "Whether a promise is broken by it."),
    TableColumn("author", ID, "Who broadcast the message."),
    TableColumn("sequence", COUNT, "The author's running number of it."),
    TableColumn("receiver", ID, "Who got it, or should have."),
    TableColumn("time", TIME, "When: of its delivery, its report, or (missing) its sending."),
    TableColumn("detail", TEXT, "The same for a person."),
)
SCHEMA = pa.schema([pa.field(each.name, each.type) for each in COLUMNS])
