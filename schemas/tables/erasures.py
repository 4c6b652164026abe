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

from commitlake.schemas.tables.columns import INT32, INT64, TEXT, TIME, Column, Columns
from commitlake.schemas.tables.messages import BODY_PLACE


class ErasureEvent(StrEnum):
    """Step in an erasure of messages, each recorded as a row of the table `erasures`."""

    BEGUN = "begun"
    MESSAGE = "message"
    LATER = "later"
    COPY = "copy"
    AGAIN = "again"
    ERASED = "erased"
    PURGED = "purged"


MESSAGE_EVENTS = (ErasureEvent.MESSAGE, ErasureEvent.COPY, ErasureEvent.AGAIN)
"""Events of a message; the others are those of an erasure."""
ERASURES = Columns(
    [
        Column("number", INT64, "number of the erasure, from 1"),
        Column(
            "erasure_id",
            TEXT,
            "random id of the erasure; an erased message has it in the property COMMITLAKE_ERASED",
        ),
        Column("event", TEXT, "begun, message, later, copy, again, erased or purged"),
        Column("at", TIME, "time of the event, UTC, by the clock of the host that wrote the row"),
        Column("reason", TEXT, "reason given by the user; in rows begun"),
        Column("owner", TEXT, "host and process id of the run that wrote the row"),
        Column(
            "detail",
            TEXT,
            "JSON: retention and key of hashes in rows begun; hash in rows later; changes of sums in rows message, "
            "until the purge; counts by place in rows erased and purged",
        ),
        Column("broker", TEXT, "store of an erased message, as in messages"),
        Column("physical_offset", INT64, "physical offset of an erased message"),
        Column("topic", TEXT, "topic of an erased message"),
        Column("queue_id", INT32, "queue of an erased message"),
        Column("store_timestamp", TIME, "store time of an erased message"),
        Column("body_ref", BODY_PLACE, "location of its body; null if the lake had none"),
        Column("body_crc", INT32, "null; in rows of earlier versions, the CRC of the body, until the purge"),
        Column("row_before", INT64, "hash of the row before the erasure, for row_checksum; null after the purge"),
        Column("row_after", INT64, "hash of the row after the erasure"),
        Column("lake_before", INT64, "hash of the row before the erasure, for lake_checksum; null after the purge"),
        Column("lake_after", INT64, "hash of the row after the erasure"),
        Column("parser_version", TEXT, "version of CommitLake that wrote the row"),
    ]
)
