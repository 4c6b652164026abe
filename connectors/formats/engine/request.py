"""Requested rows and columns of a read, after its options are checked."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from commitlake.connectors.formats.engine.filters import Filters
from commitlake.connectors.formats.engine.options import BodyForm, Mode, ReadOptions
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES


@dataclass(frozen=True)
class Request:
    """Requested rows and columns of a read.

    Attributes:
        schema: the columns, in order, as Spark's Arrow types.
        mode: the handling of bad ranges.
        filters: the filters for records.
        body: the content of the column `body`, if it is requested.
        max_body_bytes: limit of a decompressed body.
        max_batch_bytes: log bytes that are read at a time if a segment cannot be mapped.
        max_record_bytes: larger sizes are faults.
        encoded: return repeated strings as dictionary arrays, whatever the schema says. Spark does not accept them.
        keeps_bad_ranges: return bad ranges as rows in mode PERMISSIVE even if the filters use data that these lack,
            because any of them may have contained wanted records.
    """

    schema: pa.Schema
    mode: Mode = Mode.FAILFAST
    filters: Filters = field(default_factory=Filters)
    body: BodyForm = BodyForm.STORED
    max_body_bytes: int = 64 << 20
    max_batch_bytes: int = 4 << 20
    max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES
    encoded: bool = False
    keeps_bad_ranges: bool = False

    @property
    def gives_bad_ranges(self) -> bool:
        """True if bad ranges become rows."""
        return self.mode is Mode.PERMISSIVE and (self.keeps_bad_ranges or not self.filters.by_content)

    @classmethod
    def of(cls, options: ReadOptions, filters: Filters, schema: pa.Schema) -> Request:
        """Return the request for options and the columns of a schema."""
        return cls(
            schema=schema,
            mode=options.mode,
            filters=filters,
            body=BodyForm.DECOMPRESSED if options.body is BodyForm.NONE else options.body,
            max_body_bytes=options.max_body_bytes,
            max_batch_bytes=options.max_batch_bytes,
            max_record_bytes=options.max_record_bytes,
        )
