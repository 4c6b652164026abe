"""`erasures`: what was erased from the lake, when, why, and by which run; one row per event and per erased message.

An erasure takes the body, the keys and the personal properties of messages out of the lake, and leaves their rows in
`messages`: counts do not change. The row of an erased message here proves it: it has the hashes of the row before
and after, whose sums are the profile's `row_checksum` and `lake_checksum`. It holds no key, no body and no property.

    event      one row for                  when
    begun      an erasure                   its messages are fixed; from now on nothing writes them unerased again
    message    an erased message            with `begun`, in the same commit
    again      an erased message            an archive run has taken its record once more, erased at once
    erased     an erasure                   all tables and packs are done: `detail` has the counts
    purged     an erasure                   no older version of a table and no unused file contains any of it

Key: (`number`, `event`, `broker`, `physical_offset`, `at`). Append-only. Of the rows `message` and `again` of one
message the newest one counts.
"""

from __future__ import annotations

from enum import StrEnum

from pyspark.sql.types import IntegerType, LongType, StringType, StructType, TimestampType

from commitlake.schemas.tables.columns import column
from commitlake.schemas.tables.messages import BODY_PLACE


class ErasureEvent(StrEnum):
    """The event that a row records."""

    BEGUN = "begun"
    MESSAGE = "message"
    AGAIN = "again"
    ERASED = "erased"
    PURGED = "purged"


ERASURES = StructType(
    [
        column("number", LongType(), "number of the erasure, from 1"),
        column(
            "erasure_id",
            StringType(),
            "random id of the erasure; an erased message has it in the property COMMITLAKE_ERASED",
        ),
        column("event", StringType(), "begun, message, again, erased or purged"),
        column("at", TimestampType(), "time of the event, UTC, by the clock of the host that wrote the row"),
        column("reason", StringType(), "reason given by the user; in rows begun"),
        column("owner", StringType(), "host and process id of the run that wrote the row"),
        column("detail", StringType(), "JSON: the retention in rows begun; counts by place in rows erased and purged"),
        column("broker", StringType(), "store of an erased message, as in messages"),
        column("physical_offset", LongType(), "physical offset of an erased message"),
        column("topic", StringType(), "topic of an erased message"),
        column("queue_id", IntegerType(), "queue of an erased message"),
        column("store_timestamp", TimestampType(), "store time of an erased message"),
        column("body_ref", BODY_PLACE, "location of its body; null if the lake had none"),
        column("body_crc", IntegerType(), "as in messages"),
        column("row_before", LongType(), "hash of the row before the erasure; profiles sum it up in row_checksum"),
        column("row_after", LongType(), "hash of the row after the erasure"),
        column("lake_before", LongType(), "hash of the row before the erasure; profiles sum it up in lake_checksum"),
        column("lake_after", LongType(), "hash of the row after the erasure"),
        column("parser_version", StringType(), "version of CommitLake that wrote the row"),
    ]
)
