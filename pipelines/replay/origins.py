"""Original topics of retries and dead letters; see `schemas.layouts.rocketmq.origins`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from commitlake.connectors.lake.sql import text_literal
from commitlake.schemas.layouts.rocketmq.properties import DLQ_ORIGIN_TOPIC, RETRY_TOPIC

ORIGIN_TOPIC = "origin_topic"
_PROPERTIES = (RETRY_TOPIC, DLQ_ORIGIN_TOPIC)


def origin_sql(table: DeltaTable) -> str:
    """Return SQL for the original topic of a retry or a dead letter; null if it is not known.

    Args:
        table: the table `messages`; older versions lack the column `origin_topic`.
    """
    known = {field.name for field in table.schema().fields}
    texts = [ORIGIN_TOPIC] if ORIGIN_TOPIC in known else []
    texts += [f"properties[{text_literal(name)}]" for name in _PROPERTIES]
    return f"nullif(coalesce(nullif({texts[0]}, topic), {', '.join(texts[1:])}), topic)"


def origins(rows: pa.Table) -> pa.Array:
    """Return the original topics of rows that have been read.

    Args:
        rows: `topic`, `origin_topic` and `properties` of `messages`.
    """
    stored = rows.column("topic").cast(pa.string()).combine_chunks()
    told = rows.column(ORIGIN_TOPIC).cast(pa.string()).combine_chunks()
    is_own = pc.fill_null(pc.equal(told, stored), True)
    entries = rows.column("properties").combine_chunks()
    named = [pc.map_lookup(entries, pa.scalar(name, entries.type.key_type), "last") for name in _PROPERTIES]
    return pc.coalesce(pc.if_else(is_own, None, told), *[each.cast(pa.string()) for each in named])
