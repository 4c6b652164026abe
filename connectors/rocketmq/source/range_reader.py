"""Reading of queue ranges as Arrow batches, in a task."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.formats.rocketmq.pulled_records import PulledRecords
from commitlake.connectors.reading.options import BodyForm
from commitlake.connectors.reading.read_request import Request
from commitlake.connectors.rocketmq.puller import Puller
from commitlake.connectors.rocketmq.queue_reading import PulledAnswer, QueueRange, read_range
from commitlake.connectors.rocketmq.source.options import SourceOptions
from commitlake.connectors.rocketmq.source.positions import data_loss_error
from commitlake.schemas.formatted_counts import format_count

logger = logging.getLogger(__name__)

_TAGS, _QUEUE_OFFSET = pa.field("tags", pa.string()), pa.field("queue_offset", pa.int64())


class RangeReader:
    """A reader that returns the messages of several queue ranges, one after another, as rows.

    Attributes:
        lost: number of offsets that could not be read.
    """

    def __init__(self, puller: Puller, options: SourceOptions, schema: pa.Schema) -> None:
        """Create the reader.

        Args:
            options: options of the read.
            schema: the columns to return, as Spark's Arrow types.
        """
        self.lost = 0
        self._puller = puller
        self._options = options
        self._schema = schema
        self._tags = options.message_filter.tags
        # The offset is needed to drop rows outside a range, the tag because brokers compare only hashes.
        needed = (_QUEUE_OFFSET,) if self._tags is None else (_QUEUE_OFFSET, _TAGS)
        hidden = [field for field in needed if field.name not in schema.names]
        self._request = Request(
            schema=pa.schema([*schema, *hidden]),
            mode=options.mode,
            body=BodyForm.DECOMPRESSED if options.body is BodyForm.NONE else options.body,
            max_body_bytes=options.max_body_bytes,
        )

    def read(self, ranges: Sequence[QueueRange]) -> Iterator[pa.RecordBatch]:
        """Yield the messages in ranges of queue offsets as Arrow batches.

        Raises:
            RocketMQError: if messages were deleted, and the options require a failure, or if a request to a broker
                fails.
            DamagedLogError: if a record is damaged, and the mode requires a failure.
        """
        for wanted in ranges:
            yield from self._read_range(wanted)

    def _read_range(self, queue_range: QueueRange) -> Iterator[pa.RecordBatch]:
        options = self._options
        records = PulledRecords(queue_range.queue.broker_name, self._request)
        answers = read_range(
            self._puller,
            queue_range,
            self._report_lost_range,
            options.message_filter,
            retry_seconds=options.retry_seconds,
        )
        waiting: list[PulledAnswer] = []
        covered = size = 0
        for answer in answers:
            covered += min(answer.end, queue_range.end) - answer.begin
            waiting.append(answer)
            size += len(answer.body)
            if size >= options.max_batch_bytes:
                yield from self._read_rows_of_answers(records, waiting, queue_range)
                waiting, size = [], 0
        yield from self._read_rows_of_answers(records, waiting, queue_range)
        records.log_dropped_records()
        if options.message_filter.selects_all and records.messages < covered:
            self._report_lost_count(queue_range, covered - records.messages, "the broker has not sent them")

    def _read_rows_of_answers(
        self, records: PulledRecords, answers: Sequence[PulledAnswer], queue_range: QueueRange
    ) -> Iterator[pa.RecordBatch]:
        within = [answer.body for answer in answers if not answer.may_exceed]
        beyond = [answer.body for answer in answers if answer.may_exceed]
        for batch in records.decode_answers(within):
            yield from self._wanted_rows(batch, queue_range, is_all_in_range=not records.has_inner_batches)
        for batch in records.decode_answers(beyond):
            yield from self._wanted_rows(batch, queue_range, is_all_in_range=False)

    def _wanted_rows(
        self, batch: pa.RecordBatch, queue_range: QueueRange, *, is_all_in_range: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a batch that are in the wanted range, with the wanted columns."""
        wanted_rows = None
        if self._tags is not None:
            wanted_rows = pc.is_in(batch.column("tags"), pa.array(self._tags, pa.string()))
        if not is_all_in_range:
            offsets = batch.column(_QUEUE_OFFSET.name)
            inside = pc.and_(pc.greater_equal(offsets, queue_range.begin), pc.less(offsets, queue_range.end))
            wanted_rows = inside if wanted_rows is None else pc.and_(wanted_rows, inside)
        if wanted_rows is not None:
            # A row for a damaged record has no queue offset, and is always kept.
            is_damaged = pc.is_null(batch.column(_QUEUE_OFFSET.name))
            batch = batch.filter(pc.or_(pc.fill_null(wanted_rows, False), is_damaged))
        if batch.num_rows:
            yield batch.select(self._schema.names)

    def _report_lost_range(self, lost_range: QueueRange, reason: str) -> None:
        self._report_lost_count(lost_range, lost_range.size, reason)

    def _report_lost_count(self, queue_range: QueueRange, count: int, reason: str) -> None:
        text = f"{queue_range}: {format_count(count, 'message')} cannot be read: {reason}"
        if self._options.fail_on_data_loss:
            raise data_loss_error(text)
        self.lost += count
        logger.warning("%s; %d so far", text, self.lost)
