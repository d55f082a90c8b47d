"""The pipeline's questions in SQL, as one would ask them of DuckDB on one machine.

The rule: the same answers, row by row, from the same files. It is a plain form: it does not see gaps, rows set aside,
authors that did not record, or a fabric that fell apart, which made tapes do not have. How far the clocks are apart it
does not estimate: `ahead(run, time)`, what a run's clock shows too much, comes from the pipeline's table `clocks`.

Times are whole microseconds.
"""

SETTLE_US = 10_000_000
CLOCK_US = 500_000
"""The pipeline's settings, as they are by default."""

MESSAGES = """
SELECT channel, author, sequence,
       coalesce(min(time) FILTER (kind = 'sent'), min(time)) AS time,
       bool_or(kind = 'sent') AS recorded,
       min(run) FILTER (kind = 'sent') AS run,
       min(ordinal) FILTER (kind = 'sent') AS ordinal,
       min(time) AS first_seen,
       count(*) FILTER (kind = 'delivered') AS deliveries,
       any_value(size) AS size, any_value("group") AS "group", any_value(topic) AS topic,
       any_value(parent_author) AS parent_author, any_value(parent_sequence) AS parent_sequence
FROM events WHERE kind IN ('sent', 'received', 'delivered') GROUP BY channel, author, sequence
"""

DELIVERIES = """
WITH told AS (
    SELECT kind, channel, author, sequence, observer AS receiver, time, run, ordinal, hops, neighbour, size,
           parent_author, parent_sequence
    FROM events WHERE kind IN ('received', 'delivered')
    UNION ALL
    SELECT kind, channel, author, unnest(generate_series(sequence, last)), observer, time, run, ordinal, hops,
           neighbour, size, parent_author, parent_sequence
    FROM events WHERE kind = 'missed'
), each AS (
    SELECT channel, author, sequence, receiver,
           min(time) FILTER (kind = 'received') AS received,
           arg_min(time, ordinal) FILTER (kind = 'delivered') AS delivered,
           count(*) FILTER (kind = 'delivered') AS copies,
           arg_min(time, ordinal) FILTER (kind = 'missed') AS missed,
           coalesce(arg_min(hops, ordinal) FILTER (kind = 'delivered'), any_value(hops)) AS hops,
           any_value(neighbour) AS neighbour, any_value(size) AS size, any_value(run) AS run,
           min(ordinal) FILTER (kind = 'delivered') AS ordinal,
           min(ordinal) FILTER (kind = 'missed') AS missed_ordinal,
           any_value(parent_author) AS parent_author, any_value(parent_sequence) AS parent_sequence
    FROM told GROUP BY channel, author, sequence, receiver
)
SELECT each.* EXCLUDE (parent_author, parent_sequence),
       CASE WHEN messages.recorded THEN messages.time END AS sent,
       each.parent_author IS NOT NULL AS answers, each.parent_author, each.parent_sequence
FROM each LEFT JOIN messages USING (channel, author, sequence)
"""

MEMBERS = f"""
WITH marks AS (SELECT * FROM events WHERE kind IN ('joined', 'leaving', 'left', 'link_up', 'link_down')),
spans AS (SELECT channel, observer, run, max(time) AS last FROM events GROUP BY channel, observer, run),
run_ends AS (SELECT channel, run, max(last) AS run_end FROM spans GROUP BY channel, run),
words AS (
    SELECT channel, observer, neighbour, arg_max(kind, ordinal) AS kind FROM marks
    WHERE kind IN ('link_up', 'link_down') GROUP BY channel, observer, neighbour
), tied AS (
    SELECT DISTINCT one.channel, one.observer FROM words one
    LEFT JOIN words other
      ON other.channel = one.channel AND other.observer = one.neighbour AND other.neighbour = one.observer
    WHERE one.kind = 'link_up' AND coalesce(other.kind, 'link_up') = 'link_up'
), told AS (
    SELECT channel, observer, min(time) FILTER (kind = 'joined') AS joined,
           min(ordinal) FILTER (kind = 'joined') AS joined_ordinal,
           min(ordinal) FILTER (kind IN ('joined', 'link_up')) AS present_ordinal,
           min(time) FILTER (kind = 'leaving') AS leaving, min(time) FILTER (kind = 'left') AS "left",
           min(ordinal) FILTER (kind = 'left') AS left_ordinal
    FROM marks GROUP BY channel, observer
), ended AS (
    SELECT spans.channel, spans.observer AS peer, spans.run, told.* EXCLUDE (channel, observer), spans.last, run_end,
           CASE WHEN coalesce(leaving, "left") IS NOT NULL THEN 'left'
                WHEN tied.observer IS NOT NULL THEN 'present' ELSE 'gone' END AS ending
    FROM spans JOIN run_ends USING (channel, run) LEFT JOIN told USING (channel, observer)
    LEFT JOIN tied USING (channel, observer)
), bounded AS (
    SELECT * EXCLUDE (run_end), CASE ending WHEN 'left' THEN coalesce(leaving, "left")
                                            WHEN 'present' THEN run_end ELSE last END AS until
    FROM ended
), tears AS (
    SELECT DISTINCT channel, time AS torn FROM marks
    WHERE kind = 'link_down' AND why IN ('connection_lost', 'heartbeat_timeout')
)
SELECT bounded.*, tears.torn FROM bounded
ASOF LEFT JOIN tears ON tears.channel = bounded.channel AND tears.torn <= bounded.until + {SETTLE_US}
"""

ACCOUNTS = f"""
WITH authors AS (
    SELECT channel, author, max(sequence) AS known, any_value(run) AS author_run,
           max(time) FILTER (recorded) AS noted
    FROM messages GROUP BY channel, author
), held AS (
    SELECT deliveries.channel, author, max(sequence) AS held
    FROM deliveries JOIN members ON members.channel = deliveries.channel AND peer = receiver AND ending = 'present'
    WHERE copies > 0 OR missed IS NOT NULL GROUP BY ALL
), limits AS (
    SELECT authors.*,
           CASE WHEN ending = 'present' OR (ending = 'left' AND (torn IS NULL OR torn < noted - {SETTLE_US}))
                THEN known ELSE coalesce(held, 0) END AS "limit"
    FROM authors LEFT JOIN held USING (channel, author)
    LEFT JOIN members ON members.channel = authors.channel AND members.peer = authors.author
), pairs AS (
    SELECT limits.channel, author, peer AS member, "limit", ending, joined + {CLOCK_US} AS surely, joined_ordinal,
           run = author_run AS is_same_run, until - {SETTLE_US} AS settled, torn + {SETTLE_US} AS calm
    FROM limits JOIN members ON members.channel = limits.channel AND members.peer <> limits.author
), timed AS (
    SELECT pairs.*, CASE WHEN is_same_run THEN by_ordinal.sequence ELSE by_time.sequence END AS "begin",
           coalesce(final.sequence, 0) AS last_settled, coalesce(unrest.sequence, 0) AS last_torn
    FROM pairs
    ASOF LEFT JOIN messages by_time ON by_time.channel = pairs.channel AND by_time.author = pairs.author
        AND by_time.time >= pairs.surely
    ASOF LEFT JOIN messages by_ordinal ON by_ordinal.channel = pairs.channel AND by_ordinal.author = pairs.author
        AND by_ordinal.ordinal >= pairs.joined_ordinal
    ASOF LEFT JOIN messages final ON final.channel = pairs.channel AND final.author = pairs.author
        AND final.time <= pairs.settled
    ASOF LEFT JOIN messages unrest ON unrest.channel = pairs.channel AND unrest.author = pairs.author
        AND unrest.time <= pairs.calm
), had AS (
    SELECT channel, author, receiver AS member, min(sequence) AS first, max(sequence) AS final,
           count(*) FILTER (copies > 0) AS delivered, count(*) FILTER (copies = 0) AS missed
    FROM deliveries WHERE copies > 0 OR missed IS NOT NULL GROUP BY ALL
), ranged AS (
    SELECT timed.channel, timed.author, timed.member, first, final, delivered, missed,
           CASE WHEN first IS NULL AND ending = 'left' THEN greatest("begin", last_torn + 1)
                ELSE least(first, "begin") END AS "from",
           greatest(final, CASE ending WHEN 'present' THEN least(last_settled, "limit")
                                       WHEN 'left' THEN CASE WHEN last_settled > last_torn THEN last_settled ELSE 0 END
                                       ELSE 0 END) AS "to",
           "begin" IS NULL AND first IS NULL AS is_owed_nothing
    FROM timed LEFT JOIN had USING (channel, author, member)
)
SELECT channel, author, member, coalesce(delivered, 0) AS delivered, coalesce(missed, 0) AS missed, "from", "to",
       CASE WHEN is_owed_nothing THEN 0 ELSE greatest("to" - "from" + 1, 0) END AS owed
FROM ranged
"""

AUDIT = """
WITH got AS (SELECT * FROM deliveries WHERE copies > 0),
ordered AS (
    SELECT *, max(sequence) OVER (PARTITION BY channel, author, receiver ORDER BY ordinal) AS highest FROM got
), listed AS (
    SELECT channel, author, member AS receiver, unnest(generate_series("from", "to")) AS sequence
    FROM accounts WHERE owed > delivered + missed
), answered AS (SELECT DISTINCT channel, parent_author AS author, parent_sequence AS sequence FROM messages
                WHERE parent_author IS NOT NULL),
parents AS (
    SELECT channel, author, sequence, receiver, run, ordinal FROM got
    SEMI JOIN answered USING (channel, author, sequence)
    UNION ALL
    SELECT channel, author, sequence, author, run, ordinal FROM messages
    SEMI JOIN answered USING (channel, author, sequence) WHERE recorded
)
SELECT channel, 'missing' AS finding, author, sequence, receiver FROM listed
    ANTI JOIN (FROM deliveries WHERE copies > 0 OR missed IS NOT NULL) USING (channel, author, sequence, receiver)
UNION ALL SELECT channel, 'double', author, sequence, receiver FROM got WHERE copies > 1
UNION ALL SELECT channel, 'out_of_order', author, sequence, receiver FROM ordered WHERE highest > sequence
UNION ALL SELECT got.channel, 'not_present', author, sequence, receiver
    FROM got JOIN members ON members.channel = got.channel AND peer = receiver AND members.run = got.run
    WHERE got.ordinal < present_ordinal OR got.ordinal > left_ordinal
UNION ALL SELECT channel, 'own', author, sequence, receiver FROM got WHERE author = receiver
UNION ALL SELECT channel, 'missed_reported', author, sequence, receiver FROM deliveries
    WHERE copies = 0 AND missed IS NOT NULL
UNION ALL SELECT got.channel, 'before_parent', got.author, got.sequence, got.receiver
    FROM got JOIN parents ON parents.channel = got.channel AND parents.receiver = got.receiver
        AND parents.run = got.run AND parents.author = got.parent_author AND parents.sequence = got.parent_sequence
    WHERE answers AND parents.ordinal > got.ordinal
"""

_FINDINGS = ("missing", "double", "out_of_order", "before_parent", "not_present", "own", "missed_reported")
_COUNTS = ", ".join(f"count(*) FILTER (finding = '{name}') AS {name}" for name in _FINDINGS)
_NAMES = ", ".join(f"coalesce({name}, 0) AS {name}" for name in _FINDINGS)

VERDICT = f"""
WITH owed AS (
    SELECT channel, sum(owed)::BIGINT AS owed, sum(delivered)::BIGINT AS delivered FROM accounts GROUP BY channel
),
found AS (SELECT channel, {_COUNTS} FROM audit GROUP BY channel),
said AS (SELECT channel, count(*) AS messages FROM messages GROUP BY channel),
there AS (SELECT channel, count(*) AS members FROM members GROUP BY channel)
SELECT channel, messages, members, owed, delivered, {_NAMES}
FROM said JOIN there USING (channel) JOIN owed USING (channel) LEFT JOIN found USING (channel)
"""

LIVES = """
WITH seen AS (
    SELECT channel, run, observer AS peer, true AS is_own, min(time) AS first, max(time) AS last FROM events
    WHERE observer IS NOT NULL GROUP BY channel, run, observer
    UNION ALL
    SELECT channel, run, neighbour, false, min(time), max(time) FROM events
    WHERE kind = 'received' GROUP BY channel, run, neighbour
), signs AS (
    SELECT channel, peer, bool_or(is_own) AS is_recorded, min(first - ahead(run, first)) AS first,
           max(last - ahead(run, last)) AS last
    FROM seen GROUP BY channel, peer
), changes AS (
    SELECT channel, kind, observer, neighbour, why, time - ahead(run, time) AS time FROM events
    WHERE kind IN ('joined', 'leaving', 'left', 'link_up', 'link_down')
), own AS (
    SELECT channel, observer AS peer, min(time) FILTER (kind = 'joined') AS joined,
           min(time) FILTER (kind IN ('leaving', 'left')) AS leaving,
           count(*) FILTER (kind = 'link_up') > count(*) FILTER (kind = 'link_down') AS has_links
    FROM changes GROUP BY channel, observer
), others AS (
    SELECT channel, neighbour AS peer, min(time) AS linked,
           max(time) FILTER (kind = 'link_down' AND why IN ('connection_lost', 'heartbeat_timeout')) AS lost
    FROM changes WHERE neighbour IS NOT NULL GROUP BY channel, neighbour
), judged AS (
    SELECT *, leaving IS NULL AND coalesce(lost > last OR (has_links AND lost = last), false) AS has_died
    FROM signs LEFT JOIN own USING (channel, peer) LEFT JOIN others USING (channel, peer)
)
SELECT channel, peer, is_recorded, least(joined, linked, first) AS since, joined, last,
       CASE WHEN leaving IS NOT NULL THEN leaving WHEN has_died THEN last END AS gone,
       CASE WHEN leaving IS NOT NULL THEN 'left' WHEN has_died THEN 'died' ELSE 'there' END AS how
FROM judged
"""

LINKS = """
WITH changes AS (
    SELECT channel, kind, observer, neighbour, why, time - ahead(run, time) AS time,
           lead(kind) OVER own AS next_kind, lead(time - ahead(run, time)) OVER own AS next_time
    FROM events WHERE kind IN ('link_up', 'link_down')
    WINDOW own AS (PARTITION BY channel, observer, neighbour ORDER BY run, ordinal)
), halves AS (
    SELECT channel, least(observer, neighbour) AS low, greatest(observer, neighbour) AS high,
           observer < neighbour AS is_low, time AS up, CASE WHEN next_kind = 'link_down' THEN next_time END AS down,
           row_number() OVER (PARTITION BY channel, observer, neighbour ORDER BY time) AS place
    FROM changes WHERE kind = 'link_up'
), both_ends AS (
    SELECT channel, low, high, l.up AS low_up, l.down AS low_down, h.up AS high_up, h.down AS high_down
    FROM (FROM halves WHERE is_low) l FULL JOIN (FROM halves WHERE NOT is_low) h USING (channel, low, high, place)
), ended AS (
    SELECT both_ends.*, greatest(low_up, high_up) AS up,
           least(low_down, high_down, CASE WHEN one.how = 'died' THEN one.gone END,
                 CASE WHEN other.how = 'died' THEN other.gone END) AS ended,
           CASE WHEN one.how = 'died' AND low_down IS NULL THEN low
                WHEN other.how = 'died' AND high_down IS NULL THEN high END AS died
    FROM both_ends LEFT JOIN lives one ON one.channel = both_ends.channel AND one.peer = low
    LEFT JOIN lives other ON other.channel = both_ends.channel AND other.peer = high
)
SELECT channel, low, high, up, CASE WHEN ended IS NOT NULL THEN greatest(ended, up) END AS down, low_up, low_down,
       high_up, high_down, died
FROM ended
"""

_RANKS = {"p50": 0.5, "p90": 0.9, "p99": 0.99}

LATENCY = f"""
WITH said AS (SELECT channel, author, sequence, time - ahead(run, time) AS said FROM events WHERE kind = 'sent'),
delays AS (
    SELECT channel, hops, said // 60000000 * 60000000 AS minute, time - ahead(run, time) - said AS delay
    FROM events JOIN said USING (channel, author, sequence) WHERE kind = 'delivered'
)
SELECT channel, minute, count(*) AS deliveries,
       {", ".join(f"quantile_disc(delay, {share}) AS delay_{name}_us" for name, share in _RANKS.items())},
       max(delay) AS delay_max_us,
       {", ".join(f"quantile_disc(hops, {share}) AS hops_{name}" for name, share in _RANKS.items())},
       max(hops) AS hops_max
FROM delays GROUP BY channel, minute
"""

QUERIES = {
    "messages": MESSAGES,
    "deliveries": DELIVERIES,
    "members": MEMBERS,
    "accounts": ACCOUNTS,
    "audit": AUDIT,
    "verdict": VERDICT,
    "lives": LIVES,
    "links": LINKS,
    "latency": LATENCY,
}
"""In this order: one may ask the answers before it."""
