"""The questions of the pipeline in SQL, as one would ask them of DuckDB on one machine.

The answers must be equal, row by row, from the same files. The queries are simpler than the pipeline: they ignore
dropped rows, quarantined files, authors without a tape and disconnected fabrics, which synthetic tapes do not have.
They do not estimate clocks either: `ahead(run_id, event_time)`, how far a run's clock is ahead, and
`clock_error(run_id)`, how wrong that may be, come from the table `clock_offsets`.

Times are integer microseconds.
"""

from broadloom.pipeline.tables.delivery_balances import CLOCK_TOLERANCE
from broadloom.pipeline.tables.recorded_peers import SETTLE

SETTLE_US = int(float(SETTLE.default) * 1e6)
CLOCK_TOLERANCE_US = int(float(CLOCK_TOLERANCE.default) * 1e6)
"""The default settings of the pipeline."""

MESSAGES = """
SELECT channel, author, sequence,
       coalesce(min(event_time) FILTER (kind = 'sent'), min(event_time)) AS sent_time,
       bool_or(kind = 'sent') AS is_recorded,
       min(run_id) FILTER (kind = 'sent') AS run_id,
       min(ordinal) FILTER (kind = 'sent') AS ordinal,
       min(event_time) AS first_seen_time,
       count(*) FILTER (kind = 'delivered') AS delivery_count,
       any_value(size_bytes) AS size_bytes, any_value(group_id) AS group_id, any_value(topic) AS topic,
       any_value(parent_author) AS parent_author, any_value(parent_sequence) AS parent_sequence
FROM events WHERE kind IN ('sent', 'received', 'delivered') GROUP BY channel, author, sequence
"""

DELIVERIES = """
WITH expanded AS (
    SELECT kind, channel, author, sequence, peer AS receiver, event_time, run_id, ordinal, hops, neighbor, size_bytes,
           parent_author, parent_sequence
    FROM events WHERE kind IN ('received', 'delivered')
    UNION ALL
    SELECT kind, channel, author, unnest(generate_series(sequence, last_sequence)), peer, event_time, run_id, ordinal,
           hops, neighbor, size_bytes, parent_author, parent_sequence
    FROM events WHERE kind = 'missed'
), each AS (
    SELECT channel, author, sequence, receiver,
           min(event_time) FILTER (kind = 'received') AS received_time,
           arg_min(event_time, ordinal) FILTER (kind = 'delivered') AS delivered_time,
           count(*) FILTER (kind = 'delivered') AS delivery_count,
           arg_min(event_time, ordinal) FILTER (kind = 'missed') AS missed_time,
           coalesce(arg_min(hops, ordinal) FILTER (kind = 'delivered'), any_value(hops)) AS hops,
           any_value(neighbor) AS neighbor, any_value(size_bytes) AS size_bytes, any_value(run_id) AS run_id,
           min(ordinal) FILTER (kind = 'delivered') AS ordinal,
           min(ordinal) FILTER (kind = 'missed') AS missed_ordinal,
           any_value(parent_author) AS parent_author, any_value(parent_sequence) AS parent_sequence
    FROM expanded GROUP BY channel, author, sequence, receiver
)
SELECT each.* EXCLUDE (parent_author, parent_sequence),
       CASE WHEN messages.is_recorded THEN messages.sent_time END AS sent_time,
       each.parent_author IS NOT NULL AS is_reply, each.parent_author, each.parent_sequence
FROM each LEFT JOIN messages USING (channel, author, sequence)
"""

RECORDED_PEERS = f"""
WITH membership AS (
    SELECT * REPLACE (event_time - ahead(run_id, event_time) AS event_time)
    FROM events WHERE kind IN ('joined', 'leaving', 'left', 'link_up', 'link_down')
), recorded AS (
    SELECT channel, peer, run_id, max(event_time) AS last_time FROM events GROUP BY channel, peer, run_id
), spans AS (
    SELECT channel, peer, run_id, last_time - ahead(run_id, last_time) AS last_event_time FROM recorded
),
run_ends AS (SELECT channel, run_id, max(last_event_time) AS run_end_time FROM spans GROUP BY channel, run_id),
link_ends AS (
    SELECT channel, peer, neighbor, arg_max(kind, ordinal) AS kind FROM membership
    WHERE kind IN ('link_up', 'link_down') GROUP BY channel, peer, neighbor
), linked AS (
    SELECT DISTINCT one.channel, one.peer FROM link_ends one
    LEFT JOIN link_ends other
      ON other.channel = one.channel AND other.peer = one.neighbor AND other.neighbor = one.peer
    WHERE one.kind = 'link_up' AND coalesce(other.kind, 'link_up') = 'link_up'
), firsts AS (
    SELECT channel, peer, min(event_time) FILTER (kind = 'joined') AS joined_time,
           min(ordinal) FILTER (kind = 'joined') AS joined_ordinal,
           min(ordinal) FILTER (kind IN ('joined', 'link_up')) AS first_link_ordinal,
           min(event_time) FILTER (kind = 'leaving') AS leaving_time,
           min(event_time) FILTER (kind = 'left') AS left_time,
           min(ordinal) FILTER (kind = 'left') AS left_ordinal
    FROM membership GROUP BY channel, peer
), with_status AS (
    SELECT spans.channel, spans.peer, spans.run_id, firsts.* EXCLUDE (channel, peer), last_event_time, run_end_time,
           CASE WHEN coalesce(leaving_time, left_time) IS NOT NULL THEN 'left'
                WHEN linked.peer IS NOT NULL THEN 'present' ELSE 'crashed' END AS end_status
    FROM spans JOIN run_ends USING (channel, run_id) LEFT JOIN firsts USING (channel, peer)
    LEFT JOIN linked USING (channel, peer)
), bounded AS (
    SELECT * EXCLUDE (run_end_time),
           CASE end_status WHEN 'left' THEN coalesce(leaving_time, left_time)
                           WHEN 'present' THEN run_end_time ELSE last_event_time END AS end_time
    FROM with_status
), disruptions AS (
    SELECT DISTINCT channel, event_time AS last_disruption_time FROM membership
    WHERE kind = 'link_down' AND reason IN ('connection_lost', 'heartbeat_timeout')
)
SELECT bounded.*, disruptions.last_disruption_time FROM bounded
ASOF LEFT JOIN disruptions ON disruptions.channel = bounded.channel
    AND disruptions.last_disruption_time <= bounded.end_time + {SETTLE_US} + clock_error_max()
"""

DELIVERY_BALANCES = f"""
WITH authors AS (
    SELECT channel, author, max(sequence) AS known, any_value(run_id) AS author_run_id,
           max(sent_time - ahead(run_id, sent_time)) FILTER (is_recorded) AS last_sent_time
    FROM messages GROUP BY channel, author
), sent AS (
    SELECT channel, author, sequence, ordinal, sent_time - ahead(run_id, sent_time) AS sent_time FROM messages
), held AS (
    SELECT deliveries.channel, author, max(sequence) AS held
    FROM deliveries JOIN recorded_peers peers
      ON peers.channel = deliveries.channel AND peer = receiver AND end_status = 'present'
    WHERE delivery_count > 0 OR missed_time IS NOT NULL GROUP BY ALL
), bounds AS (
    SELECT authors.*,
           CASE WHEN end_status = 'present'
                  OR (end_status = 'left' AND (last_disruption_time IS NULL
                                               OR last_disruption_time
                                                  < last_sent_time - {SETTLE_US} - 2 * clock_error_max()))
                THEN known ELSE coalesce(held, 0) END AS due_limit
    FROM authors LEFT JOIN held USING (channel, author)
    LEFT JOIN recorded_peers peers ON peers.channel = authors.channel AND peers.peer = authors.author
), pairs AS (
    SELECT bounds.channel, author, peer AS receiver, due_limit, end_status, joined_ordinal,
           run_id = author_run_id AS is_same_run,
           joined_time + {CLOCK_TOLERANCE_US} + ceil(clock_error(run_id) + clock_error(author_run_id)) AS surely_after,
           end_time - {SETTLE_US} - ceil(clock_error(run_id) + clock_error(author_run_id)) AS settled_time,
           last_disruption_time + {SETTLE_US} + 2 * clock_error_max() AS undisturbed_time
    FROM bounds JOIN recorded_peers peers ON peers.channel = bounds.channel AND peers.peer <> bounds.author
), timed AS (
    SELECT pairs.*, CASE WHEN is_same_run THEN by_ordinal.sequence ELSE by_time.sequence END AS due_start,
           coalesce(settled.sequence, 0) AS last_settled, coalesce(disturbed.sequence, 0) AS last_disturbed
    FROM pairs
    ASOF LEFT JOIN sent by_time ON by_time.channel = pairs.channel AND by_time.author = pairs.author
        AND by_time.sent_time >= pairs.surely_after
    ASOF LEFT JOIN sent by_ordinal ON by_ordinal.channel = pairs.channel AND by_ordinal.author = pairs.author
        AND by_ordinal.ordinal >= pairs.joined_ordinal
    ASOF LEFT JOIN sent settled ON settled.channel = pairs.channel AND settled.author = pairs.author
        AND settled.sent_time <= pairs.settled_time
    ASOF LEFT JOIN sent disturbed ON disturbed.channel = pairs.channel AND disturbed.author = pairs.author
        AND disturbed.sent_time <= pairs.undisturbed_time
), had AS (
    SELECT channel, author, receiver, min(sequence) AS first_held, max(sequence) AS last_held,
           count(*) FILTER (delivery_count > 0) AS delivered_count,
           count(*) FILTER (delivery_count = 0) AS missed_count
    FROM deliveries WHERE delivery_count > 0 OR missed_time IS NOT NULL GROUP BY ALL
), ranged AS (
    SELECT timed.channel, timed.author, timed.receiver, first_held, last_held, delivered_count, missed_count,
           CASE WHEN first_held IS NULL AND end_status = 'left' THEN greatest(due_start, last_disturbed + 1)
                ELSE least(first_held, due_start) END AS range_start,
           greatest(last_held,
                    CASE end_status WHEN 'present' THEN least(last_settled, due_limit)
                                    WHEN 'left' THEN CASE WHEN last_settled > last_disturbed THEN last_settled
                                                          ELSE 0 END
                                    ELSE 0 END) AS range_end,
           due_start IS NULL AND first_held IS NULL AS is_nothing_due
    FROM timed LEFT JOIN had USING (channel, author, receiver)
)
SELECT channel, author, receiver, coalesce(delivered_count, 0) AS delivered_count,
       coalesce(missed_count, 0) AS missed_count, range_start, range_end,
       CASE WHEN is_nothing_due THEN 0 ELSE greatest(range_end - range_start + 1, 0) END AS due_count
FROM ranged
"""

AUDIT_FINDINGS = """
WITH got AS (SELECT * FROM deliveries WHERE delivery_count > 0),
ordered AS (
    SELECT *, max(sequence) OVER (PARTITION BY channel, author, receiver ORDER BY ordinal) AS highest FROM got
), listed AS (
    SELECT channel, author, receiver, unnest(generate_series(range_start, range_end)) AS sequence
    FROM delivery_balances WHERE due_count > delivered_count + missed_count
), with_replies AS (
    SELECT DISTINCT channel, parent_author AS author, parent_sequence AS sequence FROM messages
    WHERE parent_author IS NOT NULL
), parents AS (
    SELECT channel, author, sequence, receiver, run_id, ordinal FROM got
    SEMI JOIN with_replies USING (channel, author, sequence)
    UNION ALL
    SELECT channel, author, sequence, author, run_id, ordinal FROM messages
    SEMI JOIN with_replies USING (channel, author, sequence) WHERE is_recorded
)
SELECT channel, 'missing' AS finding, author, sequence, receiver FROM listed
    ANTI JOIN (FROM deliveries WHERE delivery_count > 0 OR missed_time IS NOT NULL)
        USING (channel, author, sequence, receiver)
UNION ALL SELECT channel, 'duplicate', author, sequence, receiver FROM got WHERE delivery_count > 1
UNION ALL SELECT channel, 'out_of_order', author, sequence, receiver FROM ordered WHERE highest > sequence
UNION ALL SELECT got.channel, 'receiver_not_member', author, sequence, receiver
    FROM got JOIN recorded_peers peers
      ON peers.channel = got.channel AND peer = receiver AND peers.run_id = got.run_id
    WHERE got.ordinal < first_link_ordinal OR got.ordinal > left_ordinal
UNION ALL SELECT channel, 'delivered_to_author', author, sequence, receiver FROM got WHERE author = receiver
UNION ALL SELECT channel, 'reported_missed', author, sequence, receiver FROM deliveries
    WHERE delivery_count = 0 AND missed_time IS NOT NULL
UNION ALL SELECT got.channel, 'reply_before_parent', got.author, got.sequence, got.receiver
    FROM got JOIN parents ON parents.channel = got.channel AND parents.receiver = got.receiver
        AND parents.run_id = got.run_id AND parents.author = got.parent_author
        AND parents.sequence = got.parent_sequence
    WHERE is_reply AND parents.ordinal > got.ordinal
"""

_FINDINGS = (
    *("missing", "duplicate", "out_of_order", "reply_before_parent", "receiver_not_member", "delivered_to_author"),
    "reported_missed",
)
_COUNTS = ", ".join(f"count(*) FILTER (finding = '{name}') AS {name}_count" for name in _FINDINGS)
_NAMES = ", ".join(f"coalesce({name}_count, 0) AS {name}_count" for name in _FINDINGS)

AUDIT_SUMMARY = f"""
WITH due AS (
    SELECT channel, sum(due_count)::BIGINT AS due_count, sum(delivered_count)::BIGINT AS delivered_count
    FROM delivery_balances GROUP BY channel
),
found AS (SELECT channel, {_COUNTS} FROM audit_findings GROUP BY channel),
sent AS (SELECT channel, count(*) AS message_count FROM messages GROUP BY channel),
peers AS (SELECT channel, count(*) AS peer_count FROM recorded_peers GROUP BY channel)
SELECT channel, message_count, peer_count, due_count, delivered_count, {_NAMES}
FROM sent JOIN peers USING (channel) JOIN due USING (channel) LEFT JOIN found USING (channel)
"""

MEMBERSHIP_INTERVALS = """ WITH seen AS ( SELECT channel, run_id, peer, true AS is_own, min(event_time) AS first_time,
max(event_time) AS last_time FROM events WHERE peer IS NOT NULL GROUP BY channel, run_id, peer UNION ALL SELECT channel,
run_id, neighbor, false, min(event_time), max(event_time) FROM events WHERE kind = 'received' GROUP BY channel, run_id,
neighbor ), signs AS ( SELECT channel, peer, bool_or(is_own) AS is_recorded, min(first_time - ahead(run_id, first_time))
AS first_seen_time, max(last_time - ahead(run_id, last_time)) AS last_seen_time FROM seen GROUP BY channel, peer ),
changes AS ( SELECT channel, kind, peer, neighbor, reason, event_time - ahead(run_id, event_time) AS event_time FROM
events WHERE kind IN ('joined', 'leaving', 'left', 'link_up', 'link_down') ), own AS ( SELECT channel, peer,
min(event_time) FILTER (kind = 'joined') AS joined_time, min(event_time) FILTER (kind IN ('leaving', 'left')) AS
leaving_time, count(*) FILTER (kind = 'link_up') > count(*) FILTER (kind = 'link_down') AS has_links FROM changes GROUP
BY channel, peer ), others AS ( SELECT channel, neighbor AS peer, min(event_time) AS linked_time, max(event_time) FILTER
(kind = 'link_down' AND reason IN ('connection_lost', 'heartbeat_timeout')) AS lost_time FROM changes WHERE neighbor IS
NOT NULL GROUP BY channel, neighbor ), judged AS ( SELECT *, leaving_time IS NULL AND coalesce(lost_time >
last_seen_time OR (has_links AND lost_time = last_seen_time), false) AS has_crashed FROM signs LEFT JOIN own USING
(channel, peer) LEFT JOIN others USING (channel, peer) ) SELECT channel, peer, is_recorded, least(joined_time,
linked_time, first_seen_time) AS start_time, joined_time, last_seen_time, CASE WHEN leaving_time IS NOT NULL THEN
leaving_time WHEN has_crashed THEN last_seen_time END AS end_time, CASE WHEN leaving_time IS NOT NULL THEN 'left' WHEN
has_crashed THEN 'crashed' ELSE 'present' END AS end_status FROM judged
"""

LINKS = """
WITH changes AS (
    SELECT channel, kind, peer, neighbor, event_time - ahead(run_id, event_time) AS event_time,
           lead(kind) OVER own AS next_kind, lead(event_time - ahead(run_id, event_time)) OVER own AS next_time
    FROM events WHERE kind IN ('link_up', 'link_down')
    WINDOW own AS (PARTITION BY channel, peer, neighbor ORDER BY run_id, ordinal)
), halves AS (
    SELECT channel, least(peer, neighbor) AS peer_a, greatest(peer, neighbor) AS peer_b, peer < neighbor AS is_a,
           event_time AS start_time, CASE WHEN next_kind = 'link_down' THEN next_time END AS end_time,
           row_number() OVER (PARTITION BY channel, peer, neighbor ORDER BY event_time) AS link_number
    FROM changes WHERE kind = 'link_up'
), both_ends AS (
    SELECT channel, peer_a, peer_b, a.start_time AS a_start_time, a.end_time AS a_end_time,
           b.start_time AS b_start_time, b.end_time AS b_end_time
    FROM (FROM halves WHERE is_a) a
    FULL JOIN (FROM halves WHERE NOT is_a) b USING (channel, peer_a, peer_b, link_number)
), crashes AS (
    SELECT channel, peer, end_time AS crash_time FROM membership_intervals WHERE end_status = 'crashed'
), ended AS (
    SELECT both_ends.*, greatest(a_start_time, b_start_time) AS start_time,
           least(a_end_time, b_end_time, a.crash_time, b.crash_time) AS first_end_time,
           CASE WHEN a.crash_time IS NOT NULL AND a_end_time IS NULL THEN peer_a
                WHEN b.crash_time IS NOT NULL AND b_end_time IS NULL THEN peer_b END AS crashed_peer
    FROM both_ends LEFT JOIN crashes a ON a.channel = both_ends.channel AND a.peer = peer_a
    LEFT JOIN crashes b ON b.channel = both_ends.channel AND b.peer = peer_b
)
SELECT channel, peer_a, peer_b, start_time,
       CASE WHEN first_end_time IS NOT NULL THEN greatest(first_end_time, start_time) END AS end_time,
       a_start_time, a_end_time, b_start_time, b_end_time, crashed_peer
FROM ended
"""

_RANKS = {"p50": 0.5, "p90": 0.9, "p99": 0.99}

LATENCY = f"""
WITH sent AS (
    SELECT channel, author, sequence, event_time - ahead(run_id, event_time) AS sent_time FROM events
    WHERE kind = 'sent'
),
latencies AS (
    SELECT channel, hops, sent_time // 60000000 * 60000000 AS start_time,
           (event_time - ahead(run_id, event_time) - sent_time) / 1000 AS latency_ms
    FROM events JOIN sent USING (channel, author, sequence) WHERE kind = 'delivered'
)
SELECT channel, start_time, count(*) AS delivery_count,
       {", ".join(f"quantile_disc(latency_ms, {ratio}) AS latency_{name}_ms" for name, ratio in _RANKS.items())},
       max(latency_ms) AS latency_max_ms,
       {", ".join(f"quantile_disc(hops, {ratio}) AS hops_{name}" for name, ratio in _RANKS.items())},
       max(hops) AS hops_max
FROM latencies GROUP BY channel, start_time
"""

QUERIES = {
    "messages": MESSAGES,
    "deliveries": DELIVERIES,
    "recorded_peers": RECORDED_PEERS,
    "delivery_balances": DELIVERY_BALANCES,
    "audit_findings": AUDIT_FINDINGS,
    "audit_summary": AUDIT_SUMMARY,
    "membership_intervals": MEMBERSHIP_INTERVALS,
    "links": LINKS,
    "latency": LATENCY,
}
"""In this order: a query may use the answers before it."""

AUDIT_QUERIES = ("messages", "deliveries", "recorded_peers", "delivery_balances", "audit_findings", "audit_summary")
"""Messages to verdict."""
