"""Query the lake by topic, queue, key, id, time, or any SQL predicate.

    commitlake query --lake /data/lake --key order-4711

Reads a table of the lake; writes rows to standard output, and on standard error their number and whether a limit cut
them. It needs no JVM; `--spark` is for results that are too large for one process. `--body` prints the body of
the only message found, with one ranged read of its pack. `--grep` searches the bodies of all selected messages. Exit
codes: 0, also if nothing matches; 2 for a wrong lake, option or predicate, or if the only body cannot be read; 3 for a
damaged table, if some of several bodies could not be read, and if the lake has lost messages that may match; 4 if the
query passed `--timeout` or `--memory`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from deltalake import DeltaTable

from commitlake.connectors.lake.delta_log.check import LogDamagedError
from commitlake.connectors.lake.follower_progress import check_is_up_to_date
from commitlake.connectors.lake.lake import Lake, NoTableError
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.lake.reader import QueryError
from commitlake.jobs.arguments.lake_location import open_lake_argument, open_packs
from commitlake.jobs.arguments.similar_names import print_warning, suggest_similar_name
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.damaged_file_errors import raise_for_damaged_file
from commitlake.jobs.cli.lost_range_warnings import OF_MESSAGES, warn_of_lost_ranges
from commitlake.jobs.cli.sql_limits import enforce_limits
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.query.arguments import QueryOptions
from commitlake.jobs.query.bodies import (
    BODY_COLUMNS,
    COLUMNS,
    BodyTextReader,
    Fetch,
    add_body_columns,
    make_body_fetcher,
    write_one_body,
)
from commitlake.jobs.query.grep import run_grep
from commitlake.jobs.query.sql_query import run_sql_query
from commitlake.jobs.report.rows_output import Row, rows_of_batches, write_rows
from commitlake.pipelines.message_keys.progress import open_newest_messages
from commitlake.pipelines.query.engines import TableQuery, hbase_lag_sentence, query_deltalake, query_hbase, query_spark
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.report_columns import Column
from commitlake.schemas.tables.lake_tables import FOLLOWING, LAKE_TABLES

DESCRIPTION = (
    "Query the lake for messages by topic, queue, kind, key, id, time, or any SQL predicate. A message must meet all "
    "conditions; an option given twice accepts either value. Times are store times in UTC, --from inclusive, --to "
    "exclusive."
)
EXAMPLES = (
    ("query --lake lake --key order-4711", "all messages of an order"),
    ("query --lake lake --topic orders --from 2026-11-20T14:00 --to 2026-11-20T14:20", "twenty minutes of a topic"),
    ("query --lake lake --id 0A00000100002A9F0000000000001000", "an offset message id, or a client's UNIQ_KEY"),
    ("query --lake lake --from -2h --where \"properties['city'] = 'Berlin'\" --format jsonl", "any predicate"),
    (
        "query --lake lake --topic orders --limit 0 --format csv --spark",
        "a result that is too large for one process",
    ),
    (
        "query --lake lake --sql 'SELECT topic, count(*) AS messages FROM messages GROUP BY topic'",
        "any SELECT over the lake's tables",
    ),
    (
        "query --lake lake --format jsonl --sql \"SELECT msg_id, body() FROM messages WHERE topic = 'orders'\"",
        "bodies, too",
    ),
    (
        "query --lake lake --spark --sql 'SELECT topic, count(*) AS messages FROM messages GROUP BY topic'",
        "the same with Spark, for large results",
    ),
    (
        "query --lake lake --topic orders --from -2h --grep 'amount\":(0|-[0-9]+)'",
        "messages whose bodies match, with an excerpt",
    ),
    ("query --lake lake --from -1d --grep '(?i)timeout' --limit 0 --format jsonl --spark", "many, on Spark"),
    ("query --lake lake --table quarantine", "damaged ranges of logs"),
    ("query --lake lake --tables", "the lake's tables"),
    ("query --lake lake --describe messages", "the columns of a table"),
    (
        "query --lake lake --id 0A00000100002A9F0000000000001000 --body | jq .",
        "the body of one message, as it was sent",
    ),
    (
        "query --lake lake --key order-4711 --limit 1 --order-by 'store_timestamp desc' --body",
        "the newest message of a key",
    ),
    ("query --lake lake --key order-4711 --via hbase --hbase hbase-thrift:9090", "through HBase, in milliseconds"),
    (
        "query --lake lake --key order-4711 --body --format jsonl",
        "the bodies of all messages, as text if possible, otherwise in base64",
    ),
    (
        "query --lake s3://archive/lake --s3-endpoint https://s3.example.org --key order-4711",
        "a lake in an object store",
    ),
)
SHORT_COLUMNS = (
    Column("store_timestamp"), Column("topic"), Column("queue_id", 5), Column("queue_offset", 4), Column("kind", 2),
    Column("keys", 1), Column("tags", 6), Column("reconsume_times", 8), Column("body_size", 7),
    Column("msg_id", 3, is_whole=True),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Query(QueryOptions):
    """The command `query`, which prints messages or other rows of a lake."""

    NAME = "query"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    def run(self) -> ExitCode:
        """Query the lake, print the rows, and report how many there were."""
        self.check_combinations()
        if self.tables or self.describe is not None:
            from commitlake.jobs.query.tables import print_tables

            return print_tables(self, open_lake_argument(self))
        with enforce_limits(self.limits()):
            return _run_query(self)


def _run_query(query: QueryOptions) -> ExitCode:
    if query.sql is not None:
        return run_sql_query(query, open_lake_argument(query), _open_table)
    lake = open_lake_argument(query).pin_versions()
    started = time.monotonic()
    fetch = make_body_fetcher(open_packs(lake), keeps_stored_form=query.stored_body) if query.prints_bodies else None
    try:
        table = (
            _fallback_table_of_lagging_hbase(query, lake) if query.via == "hbase" else _open_table(lake, query.table)
        )
    except NoTableError:
        if query.table not in FOLLOWING:
            raise
        return _answer_missing_table(query, started)
    _check_brokers(query, lake, table)
    known = _known_columns(table)
    columns = _selected_columns(query, known)
    hidden = [name for name in COLUMNS if name not in columns] if fetch else []
    table_query = _make_table_query(query, [*columns, *hidden], known)
    if query.table == "messages" and table is not None:
        table_query = _add_key_offset_conditions(table_query, lake)
    missing = _warn_of_lost_messages(query, lake, table)
    whole = ExitCode.DAMAGE if missing else ExitCode.OK
    try:
        if query.grep is not None and table is not None:
            return max(run_grep(query, table_query, lake, table), whole)
        batches = _run_table_query(query, table_query, lake, table)
        if query.count:
            found = sum(batch.column(0)[0].as_py() for batch in batches if batch.num_rows)
            print(found)
            _explain_empty_result(query, lake, table, found)
            return whole
        rows = _RowsUpToLimit(rows_of_batches(batches, 0), query.limit)
        if fetch and query.output == "table":
            if not _write_single_body(query, rows, fetch):
                _explain_empty_result(query, lake, table, 0)
            return whole
        texts = BodyTextReader(fetch) if fetch else None
        shown: Iterable[Row] = add_body_columns(rows, texts, hidden) if texts else rows
        count = write_rows(query.output, shown, [*columns, *BODY_COLUMNS] if fetch else columns, missing)
    except QueryError as error:
        if table is not None:
            raise_for_damaged_file(lake, [query.table], str(error))
        raise JobError(f"the query is invalid: {error}", f"columns are: {', '.join(known)}") from None
    _explain_empty_result(query, lake, table, count)
    if not query.quiet:
        print(_query_summary(count, rows.cut, query, time.monotonic() - started), file=sys.stderr)
    return max(texts.report_unreadable(), whole) if texts else whole


def _write_single_body(query: QueryOptions, rows: Iterable[Row], read_body: Fetch) -> bool:
    """Write the body of the only row, and return True; if there is no row, warn and return False."""
    size = write_one_body(iter(rows), read_body, query.body_out)
    if size is None:
        _print_warning("no message matches, so there is no body")
    elif query.body_out and not query.quiet:
        print_line(f"{size:,} bytes written to {query.body_out}")
    return size is not None


def _check_brokers(query: QueryOptions, lake: Lake, table: DeltaTable | None) -> None:
    if query.broker and table is not None:
        from commitlake.jobs.arguments.unknown_lake_names import check_archived_brokers

        check_archived_brokers(lake, query.broker)


def _warn_of_lost_messages(query: QueryOptions, lake: Lake, table: DeltaTable | None) -> list[str]:
    if table is None or query.table not in OF_MESSAGES:
        return []
    return warn_of_lost_ranges("query", lake, query.broker, query.start, query.end)


def _explain_masked_keys(lake: Lake) -> None:
    from commitlake.connectors.lake.archive_commits import read_last_commit

    last = read_last_commit(lake)
    if last is None or last.masks is None:
        return
    from commitlake.pipelines.masking.archive_masks import describe_rules

    _print_warning(
        f"the messages of this lake are masked ({describe_rules(last.masks)}): search for the masked form of a key"
    )


def _explain_empty_result(query: QueryOptions, lake: Lake, table: DeltaTable | None, count: int) -> None:
    """Warn of unknown topics and, if no row was found, of unknown queues, masked keys or the archived time range."""
    if not count and query.key and table is not None:
        _explain_masked_keys(lake)
    has_time = not count and (query.start or query.end)
    if query.table != "messages" or not (query.topic or query.queue or has_time):
        return
    if count and len(query.topic) < 2:  # of several topics, one may be misspelled
        return
    from commitlake.jobs.arguments.unknown_lake_names import (
        archived_time_sentence,
        unknown_queue_sentences,
        unknown_topic_sentences,
    )

    if table is None:  # HBase was queried
        try:
            table = _open_table(lake, query.table)
        except LakeError:
            return
    sentences = unknown_topic_sentences(lake, table, query.topic)
    if query.queue and not sentences and not count:
        sentences = unknown_queue_sentences(table, query.topic, query.queue)
    if has_time and not sentences and (known := archived_time_sentence(table)):
        sentences = [known]
    for sentence in sentences:
        _print_warning(sentence)


def _open_table(lake: Lake, table: str) -> DeltaTable:
    if table == "messages":
        return open_newest_messages(lake)
    if table in FOLLOWING:
        check_is_up_to_date(lake, table)
    return lake.table(table)


def _answer_missing_table(query: QueryOptions, start_time: float) -> ExitCode:
    """Answer a query of a table that does not exist yet because it has no rows, such as `quarantine`."""
    columns = _selected_columns(query, LAKE_TABLES[query.table].columns.names)
    if query.count:
        print(0)
        return ExitCode.OK
    count = write_rows(query.output, iter(()), columns)
    if not query.quiet:
        print(_query_summary(count, False, query, time.monotonic() - start_time), file=sys.stderr)
    return ExitCode.OK


def _fallback_table_of_lagging_hbase(query: QueryOptions, lake: Lake) -> DeltaTable | None:
    """Return the lake's table `messages`, to be queried instead, if HBase lacks messages of it; otherwise None."""
    try:
        table = open_newest_messages(lake)
    except LogDamagedError:
        raise
    except LakeError as error:
        _print_warning(f"cannot check that HBase is up to date: {error}")
        return None
    lacks = hbase_lag_sentence(lake, table, query.hbase or "localhost", query.hbase_table)
    if not lacks:
        return None
    _print_warning(f"{lacks}: the lake is queried instead. 'commitlake archive --hbase' updates HBase")
    return table


def _print_warning(message: str) -> None:
    print_warning("commitlake query", message)


def _known_columns(table: DeltaTable | None) -> list[str]:
    if table is not None:
        return [field.name for field in table.schema().fields]
    from commitlake.schemas.tables.messages import MESSAGES

    return list(MESSAGES.names)


def _run_table_query(
    query: QueryOptions, table_query: TableQuery, lake: Lake, table: DeltaTable | None
) -> Iterator[pa.RecordBatch]:
    if table is None:
        return query_hbase(table_query, query.hbase or "localhost", query.hbase_table)
    # With --via hbase, only the environment can ask for Spark, and means other commands.
    is_on_spark = query.is_on_spark and query.via != "hbase"
    return query_spark(table_query, lake) if is_on_spark else query_deltalake(table_query, table)


def _add_key_offset_conditions(table_query: TableQuery, lake: Lake) -> TableQuery:
    """Speed up a query by key or id: look up physical offsets in the table of keys, and add them as conditions."""
    from commitlake.pipelines.query.key_conditions import business_keys_condition, unique_key_condition

    keys = table_query.selection.keys
    return replace(
        table_query,
        key_places=business_keys_condition(lake, keys) if keys else None,
        unique_key_places=partial(unique_key_condition, lake) if table_query.selection.ids else None,
    )


def _make_table_query(query: QueryOptions, columns: Sequence[str], known_columns: Sequence[str]) -> TableQuery:
    return TableQuery(
        table=query.table,
        selection=query.selection,
        columns=columns,
        order=_sort_columns(query, known_columns),
        limit=query.limit + 1 if query.limit else 0,  # one more row shows whether there are more
        count=query.count,
    )


def _sort_columns(query: QueryOptions, known_columns: Sequence[str]) -> list[str]:
    """Return the columns of `--order-by`, followed by the table's default order, which decides between equal values."""
    order: list[str] = []
    for part in query.order_by.split(",") if query.order_by else ():
        match part.split():
            case [name] if name in known_columns:
                order.append(name)
            case [name, direction] if name in known_columns and direction.upper() in {"ASC", "DESC"}:
                order.append(f"{name} {direction.upper()}")
            case _:
                near = suggest_similar_name((part.split() or [""])[0], known_columns)
                raise JobError(
                    f"--order-by: expected a column, or a column and 'desc', found {part.strip()!r}.{near}",
                    f"columns are: {', '.join(known_columns)}",
                )
    given = {key.split()[0] for key in order}
    return [*order, *(name for name in LAKE_TABLES[query.table].query_order if name not in given)]


class _RowsUpToLimit:
    """Iterator that ends at a limit of rows, with a flag that tells whether there were more."""

    def __init__(self, rows: Iterator[Row], limit: int) -> None:
        self._rows = rows
        self._limit = limit
        self.cut = False

    def __iter__(self) -> Iterator[Row]:
        for number, row in enumerate(self._rows):
            if self._limit and number == self._limit:
                self.cut = True
                return
            yield row


def _selected_columns(query: QueryOptions, known_columns: list[str]) -> list[str]:
    if query.columns is None:
        if query.output == "table" and query.prints_bodies:
            return []
        if query.output == "table" and query.table == "messages":
            return list(SHORT_COLUMNS)
        return [name for name in known_columns if name != "store_date"]
    columns = [name.strip() for name in query.columns.split(",") if name.strip()]
    for name in columns:
        if name not in known_columns:
            raise JobError(
                f"there is no column {name!r}.{suggest_similar_name(name, known_columns)}",
                f"columns are: {', '.join(known_columns)}",
            )
    if not columns:
        raise JobError(
            "--columns: expected the name of at least one column, found none",
            f"columns are: {', '.join(known_columns)}",
        )
    return columns


def _query_summary(row_count: int, is_cut: bool, query: QueryOptions, seconds: float) -> str:
    if not row_count:
        return f"no matching {'messages' if query.table == 'messages' else 'rows'} ({seconds:.1f} s)"
    if is_cut:
        why = f"--limit {query.limit} cut the result; --limit 0 gives all"
        return f"{format_count(row_count, 'row')}, and there are more: {why} ({seconds:.1f} s)"
    return f"{format_count(row_count, 'row')} ({seconds:.1f} s)"


build_parser, main = Query.parser, Query.main
