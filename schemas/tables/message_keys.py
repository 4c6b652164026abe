"""`message_keys`: one row per key of a message, to find messages by business key or by a client's message id.

Key: (`key`, `kind`, `broker`, `physical_offset`). A file's rows are sorted by `key_hash`, the CRC-32 of the key as
UTF-8 (`crc32(key)` in Spark), so that a look-up by hash and key reads one page per file. The table is derived from
`messages` by its Delta version, and may lack the newest one.
"""

from __future__ import annotations

from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

MESSAGE_KEYS = StructType(
    [
        StructField("key_hash", LongType(), True, {"comment": "CRC-32 of the key in UTF-8; files are sorted by it"}),
        StructField("key", StringType(), True, {"comment": "a business key, or the client's message id"}),
        StructField("kind", StringType(), True, {"comment": "key (one of keys) or unique_key, as in messages"}),
        StructField("broker", StringType(), True, {"comment": "as in messages"}),
        StructField("physical_offset", LongType(), True, {"comment": "as in messages"}),
        StructField("topic", StringType(), True, {"comment": "as in messages"}),
        StructField("store_timestamp", TimestampType(), True, {"comment": "as in messages; its date is the partition"}),
    ]
)
