"""Explains an answer without records by the rows that the lake has dropped because of their age."""

from __future__ import annotations

from deltalake import DeltaTable

from commitlake.pipelines.edges.lake_spans import LinkedExtents
from commitlake.pipelines.lineage.question import Question
from commitlake.pipelines.maintenance.expiry import read_expiries
from commitlake.schemas.layouts.rocketmq.message_id import offset_in


def expiry_cautions(messages: DeltaTable, question: Question) -> list[str]:
    """Return a sentence on dropped rows; none if the lake has dropped nothing.

    Args:
        question: a question without matching records.
    """
    before = read_expiries(messages).get("messages")
    if before is None:
        return []
    dropped = f"the lake has dropped messages from before {before.isoformat()}"
    broker, offset = question.place or (None, offset_in(question.message_id))
    if offset < 0:
        return [f"{dropped}, and an older one would not be found"]
    spans = LinkedExtents(messages, ()).after(()).brokers
    firsts = [span.first_offset for name, span in spans.items() if broker in {None, name}]
    if not firsts or offset < min(firsts):
        return [f"it has expired: {dropped}"]
    return []
