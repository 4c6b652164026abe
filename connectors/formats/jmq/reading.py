"""Compiled loops for JMQ's journal; see `connectors.log_format.kernel`."""

from __future__ import annotations

from functools import partial

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.jmq.decoder import JournalDecoder
from commitlake.connectors.formats.jmq.kernel.records import (
    APP,
    APP_LENGTH,
    BUSINESS_ID,
    BUSINESS_ID_LENGTH,
    JOURNAL,
    JOURNAL_PART_COUNT,
)
from commitlake.connectors.log_format.kernel import FormatKernel
from commitlake.connectors.reading.files.segment_files import Window
from commitlake.connectors.reading.files.windows import head_field, numbers_at
from commitlake.connectors.reading.kernel import hop
from commitlake.connectors.reading.kernel.borders import find_border
from commitlake.schemas.layouts.jmq.journal import HEAD


def _store_times(window: Window, parts: Array) -> Array:
    starts = parts[hop.START]
    sent = numbers_at(window, starts + HEAD.offset_of("send_timestamp"), ">i8")
    times: Array = sent + numbers_at(window, starts + HEAD.offset_of("store_delay"), ">i4")
    return times


KERNEL = FormatKernel(
    hop=partial(hop.hop, JOURNAL),
    find_border=partial(find_border, JOURNAL),
    part_count=JOURNAL_PART_COUNT,
    texts=(
        (hop.TOPIC, hop.TOPIC_LENGTH),
        (APP, APP_LENGTH),
        (BUSINESS_ID, BUSINESS_ID_LENGTH),
        (hop.PROPERTIES, hop.PROPERTIES_LENGTH),
    ),
    store_times=_store_times,
    queue_ids=head_field(HEAD, "queue_id"),
    queue_offsets=head_field(HEAD, "queue_offset"),
    decoder=JournalDecoder,
)
