"""`evidence`: signed documents about archive runs, audits and erasures, each with the hash of the previous one.

Key: `number`. Append-only. A document is the text of a JSON object, see `pipelines.evidence.documents`; the other
columns only repeat its values. The table itself proves nothing. The proof is the signatures and the chain of hashes,
which `commitlake evidence verify` checks in the table or in a file with one document per line.
"""

from __future__ import annotations

from pyspark.sql.types import LongType, StringType, StructType, TimestampType

from commitlake.schemas.tables.columns import column

EVIDENCE = StructType(
    [
        column("number", LongType(), "number of the document, from 1"),
        column("at", TimestampType(), "time of the signature, UTC, by the clock of the signing host"),
        column("kind", StringType(), "subject: archive, audit, erasure or purge"),
        column("key_id", StringType(), "id of the signing key"),
        column("document", StringType(), "the signed document"),
    ]
)
