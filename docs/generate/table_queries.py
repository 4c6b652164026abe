"""Queries to start with, for each table of a lake. A test runs each of them on a lake."""

from __future__ import annotations

from collections.abc import Mapping

QUERIES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "messages": (
        (
            "Count messages by topic and kind",
            "SELECT topic, kind, count(*) AS messages FROM messages GROUP BY topic, kind ORDER BY messages DESC",
        ),
        (
            "Follow one order",
            (
                "SELECT store_timestamp, topic, kind, tags FROM messages WHERE array_has(keys, 'order-4711') "
                "ORDER BY store_timestamp"
            ),
        ),
        (
            "List dead letters with the topic that they were sent to",
            "SELECT store_timestamp, topic, origin_topic, reconsume_times FROM messages WHERE kind = 'dlq'",
        ),
        (
            "Print bodies, too",
            "SELECT msg_id, body() FROM messages WHERE topic = 'orders' LIMIT 5",
        ),
    ),
    "quarantine": (
        (
            "List the ranges that could not be read",
            "SELECT broker, segment, start_offset, end_offset, reason FROM quarantine",
        ),
    ),
    "gaps": (
        ("List the parts of the logs that are not in the lake", "SELECT broker, start_offset, end_offset FROM gaps"),
    ),
    "message_keys": (
        (
            "Find the most frequent keys",
            (
                "SELECT key, count(*) AS messages FROM message_keys WHERE kind = 'key' GROUP BY key "
                "ORDER BY messages DESC LIMIT 10"
            ),
        ),
    ),
    "edges": (
        (
            "Count steps and how they ended",
            "SELECT kind, outcome, count(*) AS steps FROM edges WHERE side != 'to' GROUP BY kind, outcome",
        ),
        (
            "Compare how long consumer groups take",
            "SELECT consumer_group, avg(cost_ms) AS ms FROM edges WHERE kind = 'consumed' GROUP BY consumer_group",
        ),
    ),
    "profiles": (
        (
            "Count what each run took of each topic",
            "SELECT run_id, topic, sum(messages) AS messages FROM profiles GROUP BY run_id, topic",
        ),
    ),
    "quality_results": (
        (
            "List expectations that were not met",
            "SELECT run_id, suite, expectation, severity FROM quality_results WHERE NOT success",
        ),
    ),
    "store_config": (
        (
            "Show the newest settings of a store",
            "SELECT kind, name, value, recorded_at FROM store_config ORDER BY recorded_at DESC",
        ),
    ),
    "consumer_offsets": (
        (
            "Show the history of a group's offsets",
            "SELECT as_of, topic, queue_id, consumer_offsets.offset FROM consumer_offsets ORDER BY as_of DESC",
        ),
    ),
    "subscriptions": (("Show what groups want", "SELECT as_of, topic, source FROM subscriptions ORDER BY as_of DESC"),),
    "consumptions": (
        (
            "Count the failed deliveries to each application",
            (
                "SELECT consumer_group, topic, count(*) AS failed FROM consumptions WHERE outcome != 'success' "
                "GROUP BY consumer_group, topic"
            ),
        ),
    ),
    "topic_minutes": (
        (
            "Sum messages by topic and hour",
            (
                "SELECT topic, date_trunc('hour', minute) AS hour, sum(messages) AS messages FROM topic_minutes "
                "GROUP BY topic, hour ORDER BY hour, topic"
            ),
        ),
    ),
    "lag_minutes": (
        (
            "Show how far groups were behind at each hour",
            (
                "SELECT minute, lag_minutes.group, sum(messages_max) AS messages, max(time_lag_s_max) AS seconds "
                "FROM lag_minutes WHERE NOT within_hour GROUP BY minute, lag_minutes.group "
                "ORDER BY minute"
            ),
        ),
        (
            "Sum what groups consumed in each hour",
            (
                "SELECT date_trunc('hour', minute) AS hour, lag_minutes.group, sum(consumed) AS consumed "
                "FROM lag_minutes GROUP BY hour, lag_minutes.group ORDER BY hour"
            ),
        ),
    ),
    "archive_runs": (("List the newest runs", "SELECT * FROM archive_runs ORDER BY sequence DESC LIMIT 5"),),
    "replays": (("Show what happened to each replay", "SELECT replay_id, at, event FROM replays ORDER BY at"),),
    "replay_messages": (
        (
            "Count what was sent by each replay",
            "SELECT replay_id, count(*) AS messages FROM replay_messages GROUP BY replay_id",
        ),
    ),
    "replay_rows": (
        (
            "Count what each replay changed",
            "SELECT replay_id, count(*) AS messages FROM replay_rows GROUP BY replay_id",
        ),
    ),
    "topic_misfits": (
        (
            "Count what does not fit, by topic, reason and field",
            "SELECT topic, reason, field, count(*) AS messages FROM topic_misfits GROUP BY topic, reason, field",
        ),
    ),
    "topic_schemas": (
        ("List the schemas", "SELECT topic_table, number, recorded_at FROM topic_schemas ORDER BY topic_table, number"),
    ),
    "erasures": (("List erasures", "SELECT number, at, event, reason FROM erasures ORDER BY at"),),
    "evidence": (("List the signed documents", "SELECT number, document FROM evidence ORDER BY number"),),
}
