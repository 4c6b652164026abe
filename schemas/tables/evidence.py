"""`evidence`: signed documents about archive runs, audits and erasures, each with the hash of the previous one.

Key: `number`. Append-only. A document is the text of a JSON object, see `pipelines.evidence.documents`; the other
columns only repeat its values. The table itself proves nothing. The proof is the signatures and the chain of hashes,
which `commitlake evidence verify` checks in the table or in a file with one document per line.
"""

from __future__ import annotations

from commitlake.schemas.tables.columns import INT64, TEXT, TIME, Column, Columns

EVIDENCE = Columns(
    [
        Column("number", INT64, "number of the document, from 1"),
        Column("at", TIME, "time of the signature, UTC, by the clock of the signing host"),
        Column("kind", TEXT, "subject: archive, audit, erasure or purge"),
        Column("key_id", TEXT, "id of the signing key"),
        Column("document", TEXT, "the signed document"),
    ]
)
