"""Tables that describe archive runs.

archive_runs     the runs
quality_results  the expectations that each run was judged by
store_config     settings of the archived stores
quarantine       damaged ranges of their logs
gaps             missing ranges of their logs
evidence         signed documents about runs, audits and erasures
"""

from __future__ import annotations

from commitlake.schemas.tables.columns import BINARY, BOOLEAN, INT64, TEXT, TIME, Column, Columns, ListOf

ARCHIVE_RUNS = Columns(
    [
        Column("sequence", INT64, "number of the archive commit in messages"),
        Column("run_id", TEXT, "random; distinguishes two attempts with the same number"),
        Column("started_at", TIME, "UTC"),
        Column("finished_at", TIME, "UTC"),
        Column("stores", INT64, "stores with new log in this run"),
        Column("messages", INT64, "rows added to messages"),
        Column("bytes", INT64, "log bytes from the first to the last offset read"),
        Column("quarantined", INT64, "rows added to quarantine"),
        Column("gaps", INT64, "rows added to gaps"),
        Column("recovered", BOOLEAN, "true if a later run finished this one"),
        Column("parser_version", TEXT, "version of CommitLake that read the log"),
    ]
)
"""One row per finished archive run.

Key: `sequence`. If a run has committed its messages but has no row, it was stopped before it updated the other tables.
The next run completes it and writes its row, with `recovered`.
"""


QUALITY_RESULTS = Columns(
    [
        Column("run_id", TEXT, "the archive run, as in archive_runs"),
        Column("suite", TEXT, "see commitlake.schemas.quality"),
        Column("expectation", TEXT, "name of the expectation in the suite"),
        Column("severity", TEXT, "critical (stops the commit), damage or warning"),
        Column("success", BOOLEAN, "whether the expectation was met"),
        Column("observed_value", TEXT, "observed value as JSON; null if there is none"),
        Column("judged_count", INT64, "rows of the profile that were checked"),
        Column("unexpected_count", INT64, "rows of the profile that violate the expectation"),
        Column(
            "examples",
            ListOf(TEXT),
            "the first of those rows, of damage one for each queue: their keys and values as JSON",
        ),
        Column("judged_at", TIME, "UTC"),
    ]
)
"""One row per expectation and archive run, with its result.

Key: (`run_id`, `suite`, `expectation`). The row `run`, `verdict` is the result of the whole run: `success` is false if
the run's exit code reports damage or loss. A run stopped by a critical failure also has rows here, although it
committed nothing and so has no row in `archive_runs`.
"""


STORE_CONFIG = Columns(
    [
        Column("broker", TEXT, "the store's name"),
        Column("recorded_at", TIME, "time at which the archive run read it, UTC"),
        Column("kind", TEXT, "topic, group or setting"),
        Column("name", TEXT, "name of the topic, group or setting"),
        Column("value", TEXT, "JSON; null once the topic or group is deleted"),
        Column("run_id", TEXT, "the archive run, as in archive_runs"),
    ]
)
"""The configuration of each archived store, one row per change.

A broker's log does not contain the settings of topics and groups, or the sizes of the store's files. Each archive run
compares these with the newest rows and adds a row for each change. So the configuration at a given time is the last row
of each (`broker`, `kind`, `name`) recorded at or before that time.

Key: (`broker`, `kind`, `name`, `recorded_at`). Append-only.

    kind      name                       value
    topic     a topic                    its entry in config/topics.json, in RocketMQ's form
    group     a consumer group           its entry in config/subscriptionGroup.json
    setting   delay_levels_ms            object of level to milliseconds, as the schedule queues show them
    setting   segment_size_bytes         of the CommitLog, and of the other kinds of files likewise:
              queue_file_size_bytes, batch_queue_file_size_bytes, index_slots, index_entries
"""


QUARANTINE = Columns(
    [
        Column("broker", TEXT, "the store's name"),
        Column("segment", TEXT, "file, as it was read"),
        Column("start_offset", INT64, "physical offset of the first bad byte"),
        Column("end_offset", INT64, "physical offset after the last bad byte"),
        Column("reason", TEXT, "see commitlake.schemas.layouts.rocketmq.scan.Fault"),
        Column("expected", TEXT, "value expected by the format"),
        Column("found", TEXT, "value found"),
        Column("first_bytes", BINARY, "up to 256 bytes from the start of the range"),
        Column("parser_version", TEXT, "version of CommitLake that read it"),
        Column("run_id", TEXT, "the archive run, as in archive_runs"),
    ]
)
"""One row per damaged range of a log, or per record with a value that does not fit in its column.

Key: (`broker`, `start_offset`, `reason`, `run_id`). Append-only. Later runs do not read a damaged range again, so these
rows are the only record of it.
"""


GAPS = Columns(
    [
        Column("broker", TEXT, "the store's name"),
        Column("segment", TEXT, "file that should hold the first of the bytes"),
        Column("start_offset", INT64, "physical offset of the first missing byte"),
        Column("end_offset", INT64, "physical offset after the last missing byte"),
        Column("found", TEXT, "no such file, or when it disappeared"),
        Column("parser_version", TEXT, "version of CommitLake that looked for the file"),
        Column("run_id", TEXT, "the archive run, as in archive_runs; or 'repair'"),
    ]
)
"""One row per missing range of a log, whose segments were deleted or never copied.

Key: (`broker`, `start_offset`, `run_id`). Append-only. Records in a gap are in no table; `messages` has no rows between
the two offsets. If a gap begins at the end of the previous run, the broker deleted it before it was archived.

Rows with the `run_id` `repair` are of messages that were archived, and lost with a data file of `messages`. There may
be other messages between the two offsets. `maintain --repair --store` deletes such a row once it has read the messages.
"""


EVIDENCE = Columns(
    [
        Column("number", INT64, "number of the document, from 1"),
        Column("at", TIME, "time of the signature, UTC, by the clock of the signing host"),
        Column("kind", TEXT, "subject: archive, audit, erasure or purge"),
        Column("key_id", TEXT, "id of the signing key"),
        Column("document", TEXT, "the signed document"),
    ]
)
"""Signed documents about archive runs, audits and erasures, each with the hash of the previous one.

Key: `number`. Append-only. A document is the text of a JSON object, see `pipelines.evidence.documents`; the other
columns only repeat its values. The table itself proves nothing. The proof is the signatures and the chain of hashes,
which `commitlake evidence verify` checks in the table or in a file with one document per line.
"""
