"""`evidence`: signed documents on what archive runs, audits and erasures did, each with the hash of the one before.

Key: `number`. Append-only. A document is the text of a JSON object, see `pipelines.evidence.documents`; the other
columns only repeat what it says. The table is a copy like any other: what proves is the signature and the chain, which
`commitlake evidence verify` checks, here or in a file of documents, one a line.
"""

from __future__ import annotations

from pyspark.sql.types import LongType, StringType, StructType, TimestampType

from commitlake.schemas.tables.columns import column

EVIDENCE = StructType(
    [
        column("number", LongType(), "of the document, from 1"),
        column("at", TimestampType(), "when it was signed, UTC, by the clock of the host that did"),
        column("kind", StringType(), "what it is about: archive, audit, erasure or purge"),
        column("key_id", StringType(), "id of the key that signed it"),
        column("document", StringType(), "the document, as it was signed"),
    ]
)
