"""Histories of the messages of many business keys, as analysts query them; not a stored table of a lake."""

from __future__ import annotations

from commitlake.schemas.tables.columns import BOOLEAN, INT32, INT64, TEXT, TIME, Column, Columns, ListOf

CONSUMPTION = Columns(
    [
        Column("group", TEXT, "the consumer group"),
        Column("host", TEXT, "the client, ip or ip:port; null if not known"),
        Column("attempt", INT32, "1 for the first time, 2 for the first retry; null if not known"),
        Column("cost_ms", INT64, "duration; null if only the start is known"),
        Column("succeeded", BOOLEAN, "null if only the start is known"),
        Column("outcome", TEXT, "result from the client, such as success or time-out; null if not known"),
    ]
)
"""An attempt of a group to consume a message, with the names of `Consumption`."""
_CAUSE = Columns(
    [
        Column("id", TEXT, "the earlier step"),
        Column("kind", TEXT, "what the broker or a client did, as in the table edges"),
        Column("gap_ms", INT64, "time between the two steps, ms, negative if clocks differ; null if not known"),
        Column("text", TEXT, "the same in words: delivered after level 5, third try"),
    ]
)
_OUTCOME = Columns(
    [
        Column("group", TEXT, "the consumer group; null for all groups"),
        Column("state", TEXT, "such as consumed, passed, not_consumed, waiting, dead or unknown"),
        Column("at", TIME, "time since which the state holds, or due time, UTC; null if not known"),
        Column("proof", TEXT, "trace, records, offsets or none, the strongest first"),
        Column("text", TEXT, "the same in a sentence"),
    ]
)
LINEAGE = Columns(
    [
        Column("key", TEXT, "the business key"),
        Column("number", INT64, "number of the step in the history of the key, from 1; null without a step"),
        Column("id", TEXT, "the step: broker:physical_offset for a record; null without a step"),
        Column("kind", TEXT, "that of the record, as in messages; or consumption, or missing"),
        Column("at", TIME, "time, UTC, by the broker's clock for a record, else by the client's; null if not known"),
        Column("lane", TEXT, "topic of a record, or group of a consumption"),
        Column("title", TEXT, "the step in a few words: sent to orders, consumed by billing"),
        Column("text", TEXT, "further details in a sentence"),
        Column("broker", TEXT, "store of the record; null for other steps, as the next four columns"),
        Column("physical_offset", INT64, "its physical offset"),
        Column("msg_id", TEXT, "its offset message id, as brokers print it"),
        Column("origin_topic", TEXT, "topic that the message was sent to; null if the record does not name it"),
        Column("matched", BOOLEAN, "true if the record has the key; others are there because a step leads to them"),
        Column("consumption", CONSUMPTION, "an attempt of a group to consume a message; null for other steps"),
        Column("missing", TEXT, "why the lake does not have the record, as in the table edges; null if it has it"),
        Column("causes", ListOf(_CAUSE), "the steps that led to this one"),
        Column("outcomes", ListOf(_OUTCOME), "what became of the message, at its newest step; empty at others"),
        Column("as_of", TIME, "store time of the newest archived record of these stores, UTC; null if there is none"),
        Column("not_shown", INT64, "records with the key that are left out because of the limit"),
        Column("cautions", ListOf(TEXT), "what was not searched, is not known, or was lost, about the key as a whole"),
    ]
)
"""One row for each step of each key's history, and one without a step for a key of which the lake has no record."""
