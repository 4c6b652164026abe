"""`message_keys`: one row per key of a message, to find messages by business key or by a client's message id.

Key: (`key`, `kind`, `broker`, `physical_offset`). A file's rows are sorted by `key_hash`, the CRC-32 of the key as
UTF-8 (`crc32(key)` in Spark), so that a look-up by hash and key reads one page per file. The table is derived from
`messages` by its Delta version, and may lack the newest one.
"""

from __future__ import annotations

from commitlake.schemas.tables.columns import INT64, TEXT, TIME, Column, Columns

MESSAGE_KEYS = Columns(
    [
        Column("key_hash", INT64, "CRC-32 of the key in UTF-8; files are sorted by it"),
        Column("key", TEXT, "a business key, or the client's message id"),
        Column("kind", TEXT, "key (one of keys) or unique_key, as in messages"),
        Column("broker", TEXT, "as in messages"),
        Column("physical_offset", INT64, "as in messages"),
        Column("topic", TEXT, "as in messages"),
        Column("store_timestamp", TIME, "as in messages; its date is the partition"),
    ]
)
