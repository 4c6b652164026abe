"""Judges the bodies of a batch of messages, in the task that reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.topics.changes.change_reader import ChangeReader
from commitlake.pipelines.topics.compiled_check import CompiledSchema
from commitlake.pipelines.topics.document_check import Judgement, Misfit, MisfitReason, judge_body
from commitlake.pipelines.topics.json_schema import JsonType

MISFIT_FIELDS = ("reason", "field", "expected", "found")
MISFIT_TYPE = pa.struct([pa.field(name, pa.string()) for name in MISFIT_FIELDS])
UNKNOWN_TYPE = pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False))


@dataclass(frozen=True)
class BodyJudge:
    """Judges the bodies of batches; can be pickled.

    Attributes:
        schema: type of the documents, with the fields that are dropped.
        kept_columns: columns of the messages in the result.
        drop: names of fields that are not kept.
        changes: reader of change events, if the bodies are such; the schema is then that of their rows, and batches
            have the column `keys`.
    """

    schema: JsonType
    kept_columns: tuple[str, ...]
    drop: frozenset[str] = frozenset()
    changes: ChangeReader | None = None

    def judge_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns that are kept, and `document`, `misfit` and `unknown`.

        Args:
            batch: with `body` (binary) and `body_error`.
        """
        bodies = batch.column("body")
        fits, errors = self._find_fitting(bodies), batch.column("body_error")
        others = np.flatnonzero(~fits).tolist()
        keys = None if self.changes is None else batch.column("keys")
        judged = [
            self._judge_body(bodies[row].as_py(), errors[row].as_py(), [] if keys is None else keys[row].as_py() or [])
            for row in others
        ]
        columns = [*(batch.column(name) for name in self.kept_columns), *_to_columns(bodies, fits, judged)]
        return pa.RecordBatch.from_arrays(columns, [*self.kept_columns, "document", "misfit", "unknown"])

    def _find_fitting(self, bodies: pa.Array) -> Array:
        """Return a mask of the bodies that certainly are documents without a field that the schema lacks."""
        if self.changes is not None:  # each is converted
            return np.zeros(len(bodies), np.bool_)
        try:
            bodies.cast(pa.string())
        except pa.ArrowInvalid:  # one is not UTF-8, and Python will say which
            return np.zeros(len(bodies), np.bool_)
        return self._compiled.find_fitting(bodies)

    @cached_property
    def _compiled(self) -> CompiledSchema:
        return CompiledSchema.compile_schema(self.schema)

    def _judge_body(self, body: bytes | None, error: str | None, keys: Sequence[str]) -> Judgement:
        if error is not None:
            return Judgement(
                None, {}, Misfit(MisfitReason.BODY_UNREADABLE, "", "a body that can be decompressed", error)
            )
        if body is None:
            return Judgement(None, {}, Misfit(MisfitReason.NO_BODY, "", "a body", "none in the lake"))
        if self.changes is not None:
            return self.changes.judge_body(body, keys)
        judged = judge_body(body, self.schema)
        for name in self.drop & judged.unknown.keys():
            del judged.unknown[name]
        return judged


def _to_columns(bodies: pa.Array, fits: Array, judged: Sequence[Judgement]) -> list[pa.Array]:
    """Return the columns `document`, `misfit` and `unknown` of a batch.

    Args:
        bodies: the bodies.
        fits: mask of those that are documents as they are.
        judged: what the judge says of each of the others.
    """
    if not judged:
        return [bodies.cast(pa.string()), pa.nulls(len(bodies), MISFIT_TYPE), pa.nulls(len(bodies), UNKNOWN_TYPE)]
    texts = pa.array([each.text for each in judged], pa.string())
    if fits.any():
        texts = pc.replace_with_mask(bodies.cast(pa.string()), pa.array(~fits), texts)
    misfits: list[dict[str, str] | None] = [None] * len(bodies)
    unknown: list[list[tuple[str, str]] | None] = [None] * len(bodies)
    for row, each in zip(np.flatnonzero(~fits).tolist(), judged, strict=True):
        misfits[row] = None if each.misfit is None else each.misfit._asdict()
        unknown[row] = list(each.unknown.items()) or None
    return [texts, pa.array(misfits, MISFIT_TYPE), pa.array(unknown, UNKNOWN_TYPE)]
