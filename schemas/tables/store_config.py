"""`store_config`: the configuration of each archived store, one row per change.

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

from __future__ import annotations

from commitlake.schemas.tables.columns import TEXT, TIME, Column, Columns

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
