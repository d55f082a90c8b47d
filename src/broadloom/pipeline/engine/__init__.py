"""The engine: Spark schedules and shuffles; tasks compute in Arrow and polars, and read and write Parquet themselves.

A row of a tape never becomes a Java object. Spark gets small descriptions of tasks, and blobs of Arrow where rows must
meet that are in different files. It plans, distributes, retries, and moves the blobs.

**Parts** (`parts.py`). Examining the tapes notes which peers recorded in which file. Files of a channel that share a
peer belong to one part, so a part is closed in its receivers: all deliveries to a peer are in one part. Deliveries,
order and balances need no shuffle. Small parts are combined; a part that is too large for a task is cut by receiver.

**Stages** (`stages.py`), each a pure function of frames:

    scan      per part      partial messages, membership events, spans, counts (`scans.py`); crossings by message
    merge     per channel   `messages`
    cross     per bucket    of messages: the times of both ends of every link that a message crossed (for clocks, some)
    (driver)                `clock_offsets`, over all channels
    pair      per part      `deliveries`, `delivery_balances`, findings, latency counts
    channel   per channel   every table that follows from the merged scans: peers, links, fabric, sessions, threads ...
    finish    per channel   `audit_findings`, `audit_summary`, `latency`, `link_latency`
    (driver)                `invoices`, whose previous rows are an input

Tapes of up to `WHOLE_ROWS` events are one task, which runs all stages in memory (`whole.py`). Larger ones take two
Spark jobs of two stages each (`distributed.py`): scan | shuffle | merge and cross, then pair, channel and link latency
| shuffle | finish. What a stage leaves for the next one is an Arrow file in the folder of the build, which all machines
share.

The stage `pair` needs some tables of the stage `channel`, which runs at the same time. They are small, and a task that
needs one builds it for itself.

**Retries.** A task writes Parquet under a name with its attempt and returns the name. The manifest lists only what was
returned, so a task that Spark runs twice, or speculatively, does no harm.
"""
