"""Compares the typed tables of topics with `messages`, by topic and hour.

Each message of a topic that its table follows is a row of the table, a row of `topic_misfits`, or erased:

    messages at the audit's moment - messages of files that the table has not followed yet - erased ones
        = typed rows + misfits

Only counts of an hour are held in memory, and files of `messages` are read only where a table is behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from commitlake.connectors.lake.added_files import readable_added_files
from commitlake.connectors.lake.delta_log.versions import VersionsError
from commitlake.connectors.lake.erasures import ErasedMessages, newest_erasure_number, read_erased_messages
from commitlake.connectors.lake.lake import TOPIC_TABLES, Lake, PinnedLake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import in_condition, text_literal, timestamp_literal, window_start_expression
from commitlake.pipelines.audit.audited_ranges import AuditSpan
from commitlake.pipelines.audit.audited_versions import LakeState
from commitlake.pipelines.audit.table_checks import TableFinding
from commitlake.pipelines.audit.window_profiles import SHOWN
from commitlake.pipelines.topics.progress import CHANGES_ID, lacks_misfits, read_topic_progress, topic_table_name
from commitlake.pipelines.topics.schema_history import read_topics_by_table
from commitlake.schemas.finding_advice import Advice
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.tables.topics import CHANGE, CHANGE_NUMBER, PLACE
from commitlake.schemas.times import epoch_us, format_iso_time, from_ms

MISSING = Advice(
    "{} adds the messages that the table lacks",
    ("topics --lake {lake} --topics-file {topics_file} --topic {topic} --again",),
)
"""Advice on a table that lacks messages; its places are `lake`, `topics_file` and `topic`."""
UNEXPECTED = Advice(
    "another program wrote to the table: delete its folder; {} then forgets it, and {} makes it again",
    ("maintain --lake {lake} --repair", "topics --lake {lake} --topics-file {topics_file} --topic {topic}"),
)
"""Advice on a table with rows that no message has; its places are those of `MISSING`."""
_HOUR_SECONDS = 3600
_HOUR_US = _HOUR_SECONDS * 1_000_000
_MISFITS, _SCHEMAS = "topic_misfits", "topic_schemas"
HourCounts = Counter[tuple[str | None, int | None]]
"""Numbers of messages by topic and start of the hour, microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class TopicComparison:
    """Messages of a topic, compared by hour with the rows of its typed table.

    Attributes:
        table: path of the table in the lake.
        topic: its topic; empty if unknown.
        version: version of the table.
        followed: version of `messages` that the table follows.
        hours: number of hours with messages or rows.
        messages: number of messages that the table follows and that are not erased.
        rows: number of its rows.
        misfits: number of messages in `topic_misfits`.
        erased: number of erased messages.
        pending: number of messages that the table does not follow yet.
        differing: number of hours in which messages and rows with misfits differ.
        missing: number of messages that are neither rows nor misfits.
        unexpected: number of rows and misfits beyond the messages.
        differences: sentences on the first of these hours.
        notes: sentences on what was not compared.
        compared: False if nothing was compared; a note says why.
    """

    table: str
    topic: str = ""
    version: int = -1
    followed: int = -1
    hours: int = 0
    messages: int = 0
    rows: int = 0
    misfits: int = 0
    erased: int = 0
    pending: int = 0
    differing: int = 0
    missing: int = 0
    unexpected: int = 0
    differences: Sequence[str] = ()
    notes: Sequence[str] = ()
    compared: bool = True

    @property
    def advice(self) -> Advice:
        """Advice on the differences: rows that are too many cannot be told from others, so the table is made again."""
        return UNEXPECTED if self.unexpected else MISSING

    def to_finding(self) -> Iterator[TableFinding]:
        """Yield a finding if the table differs."""
        if self.differing:
            yield TableFinding(self.table, self.differing, "hours", self.differences)


def compare_topic_tables(
    lake: Lake, moment: LakeState, span: AuditSpan, damaged_tables: Collection[str]
) -> list[TopicComparison]:
    """Compare each typed table of a lake with the messages of its topic, by hour.

    Args:
        lake: the lake, with pinned versions.
        moment: the state of `messages` to compare with.
        span: range of messages.
        damaged_tables: tables that cannot be read, which are left out.
    """
    tables = [table for table in lake.list_topic_tables() if table not in damaged_tables]
    if not tables or {_MISFITS, _SCHEMAS} & {*damaged_tables}:
        return []
    topics = read_topics_by_table(lake)
    found = [_describe_table(lake, moment, table, topics.get(table, ())) for table in tables]
    counts = _MessageCounts(lake, moment, _first_kept(moment, span), [each.topic for each in found if each.compared])
    return [_compare_table(counts, each) if each.compared else each for each in found]


def _first_kept(moment: LakeState, span: AuditSpan) -> AuditSpan:
    for table in ("messages", TOPIC_TABLES, _MISFITS):
        span = span.limit_to_dates_from(moment.expired.get(table))
    return span


def _describe_table(lake: Lake, moment: LakeState, table: str, topics: Sequence[str]) -> TopicComparison:
    """Return what is to be compared of a table; `compared` is False, with a note, if it cannot be."""
    opened = lake.table(table)
    progress = read_topic_progress(opened)
    topic = topics[0] if len(topics) == 1 else ""
    described = TopicComparison(table, topic, opened.version(), progress.version)
    reason = ""
    if opened.transaction_version(CHANGES_ID) is not None:
        reason = "it has the current rows of a source, not messages"
    elif not topics or progress.version < 0:
        reason = "'commitlake topics' has not made it"
    elif not topic:
        reason = f"it had several topics ({', '.join(topics[:5])})"
    elif progress.version > moment.version:
        reason = "'commitlake topics' has added messages meanwhile"
    elif newest_erasure_number(opened) < read_erased_messages(lake).number:
        reason = "an erasure is not complete in it ('erase --finish')"
    elif lacks_misfits(lake, table, progress):
        reason = "the misfits of its newest run are not recorded yet: the next 'commitlake topics' does that"
    return replace(described, notes=[f"is not compared: {reason}"], compared=False) if reason else described


@dataclass(frozen=True)
class _MessageCounts:
    """Numbers of messages of topics at the moment of an audit, by topic and hour."""

    lake: Lake
    moment: LakeState
    span: AuditSpan
    topics: Sequence[str]
    _pending: dict[int, HourCounts] = field(default_factory=dict, init=False)

    @cached_property
    def all(self) -> HourCounts:
        """Numbers of all messages."""
        table = self.lake.table_at("messages", self.moment.version)
        where = self._where(in_condition("topic", map(text_literal, self.topics)))
        return _count_by_hour(table, "messages", where, ("topic", "store_timestamp"))

    @cached_property
    def erasures(self) -> ErasedMessages:
        """The erased messages of the lake."""
        return read_erased_messages(self.lake)

    @cached_property
    def erased(self) -> HourCounts:
        """Numbers of erased messages."""
        if not self.erasures:
            return Counter()
        table = self.lake.table_at("messages", self.moment.version)
        brokers = in_condition("broker", map(text_literal, self.erasures.brokers))
        where = self._where(f"{in_condition('topic', map(text_literal, self.topics))} AND {brokers}")
        sql = f"SELECT topic, store_timestamp, broker, physical_offset FROM messages{where}"
        return self._count_batches(run_sql(table, "messages", sql), is_erased=True)

    def pending_after(self, version: int) -> HourCounts:
        """Return the numbers of messages that were added after a version and are not erased.

        Raises:
            VersionsError: if that is no longer known.
        """
        if version not in self._pending:
            view = PinnedLake(self.lake.root, self.lake.s3, self.lake.packs, versions={"messages": self.moment.version})
            added = readable_added_files(view, version)
            if added.from_scratch:
                raise VersionsError("files that were added since are gone")
            counts: HourCounts = Counter()
            for file in added.files:
                with view.open_folder("messages").open_input_file(file.name) as source:
                    columns = ["topic", "store_timestamp", "broker", "physical_offset"]
                    batches = pq.ParquetFile(source).iter_batches(columns=columns)
                    counts += self._count_batches(batches, is_erased=False)
            self._pending[version] = counts
        return self._pending[version]

    def _where(self, condition: str) -> str:
        return f" WHERE {condition}{_span_condition('store_timestamp', self.span)}"

    def _count_batches(self, batches: Iterable[pa.RecordBatch], *, is_erased: bool) -> HourCounts:
        """Count messages by topic and hour: those that are erased, or the others."""
        counts: HourCounts = Counter()
        for batch in batches:
            codes = self.erasures.find_row_erasure_indexes(batch.column("broker"), batch.column("physical_offset"))
            topic = batch.column("topic").cast(pa.string())
            time = batch.column("store_timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            is_chosen = pc.and_(pc.is_in(topic, pa.array(self.topics)), pa.array((codes >= 0) == is_erased))
            for bound, is_within in ((self.span.first, pc.greater_equal), (self.span.last, pc.less)):
                if bound is not None:
                    is_chosen = pc.and_(is_chosen, is_within(time, epoch_us(bound)))
            times = np.asarray(time.fill_null(0))
            hour = pa.array(times - times % _HOUR_US, mask=np.asarray(time.is_null()))
            chosen = pa.table({"topic": topic, "hour": hour}).filter(is_chosen)
            for row in chosen.group_by(["topic", "hour"]).aggregate([([], "count_all")]).to_pylist():
                counts[row["topic"], row["hour"]] += row["count_all"]
        return counts


def _compare_table(counts: _MessageCounts, described: TopicComparison) -> TopicComparison:
    topic, opened = described.topic, counts.lake.table(described.table)
    lacking = {*PLACE.names} - {column.name for column in opened.schema().fields}
    if lacking:
        line = f"expected the columns {', '.join(sorted(lacking))}, which another program has removed"
        return replace(described, differing=1, unexpected=1, differences=[line])
    try:
        pending = _only(counts.pending_after(described.followed), topic)
    except (VersionsError, OSError) as error:
        reason = f"is not compared: it follows messages only to version {described.followed}, and {error}"
        return replace(described, compared=False, notes=[reason])
    erased, expected = _only(counts.erased, topic), _only(counts.all, topic)
    expected.subtract(erased)
    expected.subtract(pending)
    compared = replace(described, erased=erased.total(), pending=pending.total(), messages=expected.total())
    if pending:
        note = (
            f"follows messages to version {described.followed} of {counts.moment.version}: 'commitlake topics' adds "
            f"{format_count(pending.total(), 'more message')}"
        )
        compared = replace(compared, notes=[note])
    return _compare_hours(compared, expected, *_count_table(counts, described.table))


def _count_table(counts: _MessageCounts, table: str) -> tuple[HourCounts, HourCounts]:
    """Return the numbers of a typed table's rows, and of its misfits."""
    opened = counts.lake.table(table)
    # A message with several changes is one row of each, and counts once.
    has_changes = {*CHANGE.names, CHANGE_NUMBER.name} <= {column.name for column in opened.schema().fields}
    condition = f"{CHANGE_NUMBER.name} = 0" if has_changes else "TRUE"
    where = f" WHERE {condition}{_span_condition('_store_timestamp', counts.span)}"
    rows = _count_by_hour(opened, "typed", where, ("_topic", "_store_timestamp"))
    misfits = counts.lake.find(_MISFITS)
    if misfits is None:
        return rows, Counter()
    name = text_literal(topic_table_name(table))
    where = f" WHERE topic_table = {name}{_span_condition('store_timestamp', counts.span)}"
    return rows, _count_by_hour(misfits, _MISFITS, where, ("topic", "store_timestamp"))


def _compare_hours(
    compared: TopicComparison, expected: HourCounts, rows: HourCounts, misfits: HourCounts
) -> TopicComparison:
    gaps = {key: expected[key] - rows[key] - misfits[key] for key in sorted({*expected, *rows, *misfits}, key=str)}
    wrong = [key for key, gap in gaps.items() if gap]
    return replace(
        compared,
        hours=len(gaps),
        rows=rows.total(),
        misfits=misfits.total(),
        differing=len(wrong),
        missing=sum(gap for gap in gaps.values() if gap > 0),
        unexpected=-sum(gap for gap in gaps.values() if gap < 0),
        differences=[_difference_sentence(key, expected, rows, misfits) for key in wrong[:SHOWN]],
    )


def _only(counts: HourCounts, topic: str) -> HourCounts:
    return Counter({key: count for key, count in counts.items() if key[0] == topic})


def _count_by_hour(table: DeltaTable, name: str, where: str, columns: tuple[str, str]) -> HourCounts:
    topic, time = columns
    hour = window_start_expression(time, _HOUR_SECONDS)
    sql = f"SELECT {topic} AS topic, {hour} AS hour, count(*) AS n FROM {name}{where} GROUP BY 1, 2"
    found = run_sql(table, name, sql).read_all()
    hours = found.column("hour").cast(pa.int64()).to_pylist()
    return Counter(
        dict(
            zip(zip(found.column("topic").to_pylist(), hours, strict=True), found.column("n").to_pylist(), strict=True)
        )
    )


def _span_condition(column: str, span: AuditSpan) -> str:
    parts = [f" AND {column} >= {timestamp_literal(span.first)}"] if span.first is not None else []
    parts += [f" AND {column} < {timestamp_literal(span.last)}"] if span.last is not None else []
    return "".join(parts)


def _difference_sentence(
    key: tuple[str | None, int | None], expected: HourCounts, rows: HourCounts, misfits: HourCounts
) -> str:
    topic, hour = key
    start = "without a time" if hour is None else f"hour {format_iso_time(from_ms(hour // 1000))}"
    found = f"{format_count(rows[key], 'row')} and {format_count(misfits[key], 'misfit')}"
    return f"topic {topic}, {start}: expected {format_count(expected[key], 'message')}, found {found}"
