"""`erasures`: the erasures from the lake with time, reason and run; one row per event and per erased message.

An erasure removes the body, the keys and the personal properties of messages from the lake. Their rows in `messages`
stay, so counts do not change. The row of an erased message in this table is the proof: it contains the hash of the row
after the erasure, as summed in the profile's `row_checksum` and `lake_checksum`. The hashes before, and what else the
profiles must be corrected by, are deleted in the purge. It contains no key, body or property.

    event      one row for                  when
    begun      an erasure                   its messages are selected; from now on they are only written erased
    message    an erased message            with `begun`, in the same commit
    later      a key or id of an erasure    with `begun`: a hash in `detail` by which later copies are recognised
    copy       an erased message            an archive run has archived a later copy of an erased one, already erased
    again      an erased message            an archive run has archived its record again, already erased
    erased     an erasure                   the messages are erased in all tables and packs: `detail` has the counts
    purged     an erasure                   no older version of a table and no unused file contains any of it

Key: (`number`, `event`, `broker`, `physical_offset`, `at`); rows `later` differ in `detail`. Append-only. If a message
has several rows `message`, `copy` and `again`, the newest one is valid.
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
    LATER = "later"
    COPY = "copy"
    AGAIN = "again"
    ERASED = "erased"
    PURGED = "purged"


MESSAGE_EVENTS = (ErasureEvent.MESSAGE, ErasureEvent.COPY, ErasureEvent.AGAIN)
"""Events of a message; the others are those of an erasure."""
ERASURES = StructType(
    [
        column("number", LongType(), "number of the erasure, from 1"),
        column(
            "erasure_id",
            StringType(),
            "random id of the erasure; an erased message has it in the property COMMITLAKE_ERASED",
        ),
        column("event", StringType(), "begun, message, later, copy, again, erased or purged"),
        column("at", TimestampType(), "time of the event, UTC, by the clock of the host that wrote the row"),
        column("reason", StringType(), "reason given by the user; in rows begun"),
        column("owner", StringType(), "host and process id of the run that wrote the row"),
        column(
            "detail",
            StringType(),
            "JSON: retention and key of hashes in rows begun; hash in rows later; changes of sums in rows message, "
            "until the purge; counts by place in rows erased and purged",
        ),
        column("broker", StringType(), "store of an erased message, as in messages"),
        column("physical_offset", LongType(), "physical offset of an erased message"),
        column("topic", StringType(), "topic of an erased message"),
        column("queue_id", IntegerType(), "queue of an erased message"),
        column("store_timestamp", TimestampType(), "store time of an erased message"),
        column("body_ref", BODY_PLACE, "location of its body; null if the lake had none"),
        column("body_crc", IntegerType(), "null; in rows of earlier versions, the CRC of the body, until the purge"),
        column("row_before", LongType(), "hash of the row before the erasure, for row_checksum; null after the purge"),
        column("row_after", LongType(), "hash of the row after the erasure"),
        column(
            "lake_before", LongType(), "hash of the row before the erasure, for lake_checksum; null after the purge"
        ),
        column("lake_after", LongType(), "hash of the row after the erasure"),
        column("parser_version", StringType(), "version of CommitLake that wrote the row"),
    ]
)
