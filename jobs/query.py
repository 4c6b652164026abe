"""Ask the lake: by topic, queue, key, id, time, or any SQL predicate.

    commitlake query --lake /data/lake --key order-4711

Reads a table of the lake; writes rows to standard output, and on standard error how many and whether a limit cut
them. It answers without a JVM; `--engine spark` is for results that outgrow one process. Exit codes: 0, also where
nothing matches; 2 for a wrong lake, option or predicate.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence

import pyarrow as pa

from connectors.lake.paths import LakePaths
from connectors.lake.reader import QueryError, clean_message, open_table, run_sql
from jobs.command import ExitCode, JobError, job_parser, run_job
from jobs.query_output import plain_rows, write
from jobs.query_sql import Conditions, Engine, id_predicates, predicates, select
from jobs.times import parse_time
from schemas.layouts.topics import Kind

DESCRIPTION = (
    "Ask the lake for messages: by topic, queue, kind, key, id, time, or any SQL predicate. All conditions must hold; "
    "an option given twice takes either value. Times are store times in UTC, --from inclusive, --to exclusive."
)
EXAMPLES = (
    ("query --lake lake --key order-4711", "what happened to an order"),
    ("query --lake lake --topic orders --from 2026-11-20T14:00 --to 2026-11-20T14:20", "a topic, twenty minutes"),
    ("query --lake lake --id 0A00000100002A9F0000000000001000", "an offset message id, or a client's UNIQ_KEY"),
    ("query --lake lake --from -2h --where \"properties['city'] = 'Berlin'\" --output jsonl", "any predicate"),
    ("query --lake lake --topic orders --limit 0 --output csv --engine spark", "more than one process should hold"),
    ("query --lake lake --table quarantine", "what could not be read"),
)
TABLES = ("messages", "quarantine", "archive_runs")
SHORT_COLUMNS = (
    "store_timestamp", "topic", "queue_id", "queue_offset", "kind", "keys", "tags", "reconsume_times", "body_size",
    "msg_id",
)  # fmt: skip
_ORDER = {
    "messages": ("store_timestamp", "broker", "physical_offset"),
    "quarantine": ("broker", "start_offset"),
    "archive_runs": ("sequence",),
}


def build_parser() -> argparse.ArgumentParser:
    """The job's arguments."""
    parser = job_parser("query", DESCRIPTION, EXAMPLES)
    parser.add_argument("--lake", required=True, metavar="DIR", help="the lake's folder")
    parser.add_argument("--table", choices=TABLES, default="messages", help="which table (default: messages)")
    parser.add_argument("--topic", action="append", default=[], help="stored topic")
    parser.add_argument("--queue", type=int, help="queue id")
    parser.add_argument(
        "--kind", action="append", default=[], choices=[str(kind) for kind in Kind], help="kind of record"
    )
    parser.add_argument("--key", action="append", default=[], help="business key")
    parser.add_argument("--id", help="offset message id, or client message id (UNIQ_KEY)")
    parser.add_argument("--broker", action="append", default=[], help="the store's name")
    parser.add_argument("--from", dest="start", type=parse_time, metavar="TIME",
                        help="stored then or later: 2026-11-20T14:00, 2026-11-20, ms since 1970, now, -2h")  # fmt: skip
    parser.add_argument("--to", dest="end", type=parse_time, metavar="TIME", help="stored before")
    parser.add_argument("--where", metavar="SQL", help="any predicate over the table's columns")
    parser.add_argument("--columns", metavar="A,B", help="which columns; a table shows the main ones, else all")
    parser.add_argument(
        "--limit", type=int, default=100, metavar="N", help="at most so many rows, 0 for all (default: 100)"
    )
    parser.add_argument("--output", choices=("table", "jsonl", "csv"), default="table", help="(default: table)")
    parser.add_argument("--engine", choices=[str(engine) for engine in Engine], default=str(Engine.DELTALAKE),
                        help="what answers (default: deltalake)")  # fmt: skip
    return parser


class _Question:
    """The arguments as SQL for one engine."""

    def __init__(self, arguments: argparse.Namespace, columns: Sequence[str]) -> None:
        self._arguments = arguments
        self._columns = columns
        self._engine = Engine(arguments.engine)

    def statements(self, table: str) -> Iterator[str]:
        """What to ask, the next one only where the one before found nothing."""
        arguments, engine = self._arguments, self._engine
        conditions = Conditions(
            arguments.topic, arguments.queue, arguments.kind, arguments.key, arguments.broker,
            arguments.start, arguments.end, arguments.where,
        )  # fmt: skip
        fixed = predicates(conditions, engine)
        limit = arguments.limit + 1 if arguments.limit else 0  # one more tells whether there are more
        for wanted in id_predicates(arguments.id, engine) if arguments.id else [""]:
            where = [*fixed, *([wanted] if wanted else [])]
            yield select(table, self._columns, where, _ORDER[arguments.table], limit, engine)


def job(arguments: argparse.Namespace) -> ExitCode:
    """Ask, print, and say how many there were."""
    started = time.monotonic()
    _check(arguments)
    lake = LakePaths(arguments.lake)
    table = open_table(lake, arguments.table)
    known = [field.name for field in table.schema().fields]
    columns = _columns(arguments, known)
    question = _Question(arguments, columns)
    try:
        if arguments.engine == Engine.SPARK:
            batches = _ask_spark(question, getattr(lake, arguments.table))
        else:
            batches = _ask(run_sql(table, arguments.table, sql) for sql in question.statements(arguments.table))
        rows = _Counted(plain_rows(batches, 0), arguments.limit)
        count = write(arguments.output, rows, columns)
    except QueryError as error:
        raise JobError(f"the engine refused the question: {error}", f"columns are: {', '.join(known)}") from None
    if not arguments.quiet:
        print(_summary(count, rows.cut, arguments, time.monotonic() - started), file=sys.stderr)
    return ExitCode.OK


class _Counted:
    """Rows up to a limit, which remembers whether there was one more."""

    def __init__(self, rows: Iterator[dict[str, object]], limit: int) -> None:
        self._rows = rows
        self._limit = limit
        self.cut = False

    def __iter__(self) -> Iterator[dict[str, object]]:
        for number, row in enumerate(self._rows):
            if self._limit and number == self._limit:
                self.cut = True
                return
            yield row


def _ask(readers: Iterator[pa.RecordBatchReader]) -> Iterator[pa.RecordBatch]:
    """Batches of the first answer that is not empty."""
    for reader in readers:
        found = False
        for batch in reader:
            found = found or batch.num_rows > 0
            yield batch
        if found:
            return


def _ask_spark(question: _Question, uri: str) -> Iterator[pa.RecordBatch]:
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql.pandas.types import to_arrow_schema

    from connectors.spark_session import get_session

    spark = get_session("query")
    for sql in question.statements(f"delta.`{uri if '://' in uri else _absolute(uri)}`"):
        try:
            frame = spark.sql(sql)
        except (AnalysisException, ParseException) as error:
            raise QueryError(clean_message(str(error).splitlines()[0])) from None
        schema = to_arrow_schema(frame.schema, timezone="UTC")
        found = False
        for row in frame.toLocalIterator(prefetchPartitions=True):
            found = True
            yield pa.RecordBatch.from_pylist([row.asDict()], schema=schema)
        if found:
            return


def _absolute(path: str) -> str:
    from pathlib import Path

    return str(Path(path).absolute())


def _columns(arguments: argparse.Namespace, known: list[str]) -> list[str]:
    if arguments.columns is None:
        if arguments.output == "table" and arguments.table == "messages":
            return list(SHORT_COLUMNS)
        return [name for name in known if name != "store_date"]
    columns = [name.strip() for name in arguments.columns.split(",") if name.strip()]
    for name in columns:
        if name not in known:
            raise JobError(f"there is no column {name!r}", f"columns are: {', '.join(known)}")
    if not columns:
        raise JobError("--columns names no column", f"columns are: {', '.join(known)}")
    return columns


def _check(arguments: argparse.Namespace) -> None:
    if arguments.limit < 0:
        raise JobError(f"--limit: expected 0 or more, found {arguments.limit}")
    if arguments.start and arguments.end and arguments.start >= arguments.end:
        raise JobError(f"--from {arguments.start} is not before --to {arguments.end}")
    conditions = ("topic", "queue", "kind", "key", "id", "broker", "start", "end")
    if arguments.table != "messages" and any(getattr(arguments, name) not in (None, []) for name in conditions):
        raise JobError(f"the table {arguments.table} takes --where only", "the other conditions are of messages")


def _summary(count: int, cut: bool, arguments: argparse.Namespace, seconds: float) -> str:
    if not count:
        return f"no {'messages match' if arguments.table == 'messages' else 'rows match'} ({seconds:.1f} s)"
    if cut:
        why = f"--limit {arguments.limit} cut the result; --limit 0 gives all"
        return f"{count:,} rows, and there are more: {why} ({seconds:.1f} s)"
    return f"{count:,} rows ({seconds:.1f} s)"


def main(argv: Sequence[str] | None = None) -> int:
    """`commitlake query`."""
    return run_job(build_parser(), job, argv)
