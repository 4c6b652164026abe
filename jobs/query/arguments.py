"""The command line arguments of `query`, and the checks on their combinations."""

from __future__ import annotations

import argparse

from commitlake.connectors.lake.sql import Engine
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.durations import parse_duration
from commitlake.jobs.cli.engine_argument import add_engine_argument, refuse_spark
from commitlake.jobs.cli.limits import TIMEOUT, Limits, default_memory
from commitlake.jobs.cli.output_forms import add_format_argument
from commitlake.jobs.cli.places import add_place_arguments
from commitlake.jobs.cli.store_arguments import at_least, file_size
from commitlake.jobs.cli.times import add_time_arguments
from commitlake.jobs.query.bodies import MAX_BODY_ROWS
from commitlake.schemas.layouts.rocketmq.topics import Kind
from commitlake.schemas.tables.lake_tables import LAKE_TABLES

_CONDITIONS = ("topic", "queue", "kind", "key", "id", "broker", "start", "end")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `query`."""
    add_place_arguments(parser)
    parser.add_argument(
        "--table", choices=tuple(LAKE_TABLES), default="messages", help="the table to query (default: messages)"
    )
    parser.add_argument("--topic", action="append", default=[], help="stored topic")
    parser.add_argument("--queue", action="append", default=[], type=at_least(0), help="queue id")
    parser.add_argument(
        "--kind", action="append", default=[], choices=[str(kind) for kind in Kind], help="kind of record"
    )
    parser.add_argument("--key", action="append", default=[], help="business key")
    id_help = "offset message id, or client message id (UNIQ_KEY)"
    parser.add_argument("--id", action="append", default=[], help=id_help)
    parser.add_argument("--broker", action="append", default=[], help="the store's name")
    add_time_arguments(parser)
    sql_help = (
        f"any SELECT over the lake's tables, also with aggregates: {', '.join(LAKE_TABLES)}; nothing else is accepted, "
        "and --limit counts its rows. Among the selected columns, body() is a message's body, or body(t) if messages "
        "has the alias t. "
        "With --spark it is Spark's SQL"
    )
    parser.add_argument("--sql", metavar="SELECT", help=sql_help)
    parser.add_argument("--tables", action="store_true", help="print the lake's tables, with their number of rows")
    parser.add_argument(
        "--describe", metavar="TABLE", help="print the columns of a table, with their types and contents"
    )
    parser.add_argument("--where", metavar="SQL", help="any predicate over the table's columns")
    grep_help = (
        "search the bodies of the messages for a regular expression (RE2's syntax, over bytes), on all cores or, with "
        "--spark, on Spark; the output shows the first match"
    )
    parser.add_argument("--grep", metavar="REGEX", help=grep_help)
    parser.add_argument(
        "--columns", metavar="A,B", help="the columns to print (default: the main ones in a table, otherwise all)"
    )
    parser.add_argument(
        "--order-by",
        metavar="A,B",
        help="sort by these columns, 'A desc' for descending order (default: store time)",
    )
    parser.add_argument("--count", action="store_true", help="print only the number of rows")
    parser.add_argument(
        "--limit", type=int, default=100, metavar="N", help="largest number of rows, 0 for all (default: 100)"
    )
    parser.add_argument(
        "--body",
        action="store_true",
        help="print only the body of the one matching message; with --format json, jsonl or csv the body of each row",
    )
    parser.add_argument("--body-out", metavar="FILE", help="write the body to a file; implies --body")
    parser.add_argument(
        "--stored-body", action="store_true", help="print the body as the broker stored it, possibly compressed"
    )
    add_format_argument(parser)
    parser.add_argument("--via", choices=("delta", "hbase"), default="delta",
                        help="where to look up messages: the lake's table, or HBase (default: delta)")  # fmt: skip
    parser.add_argument("--hbase", metavar="HOST[:PORT]", help="HBase's Thrift server (default: localhost:9090)")
    parser.add_argument(
        "--hbase-table", metavar="NAME", help="name of the table in HBase (default: commitlake_messages)"
    )
    timeout_help = (
        "end the query after this time, with exit code 4; 0s for no limit (default: 10m with --sql or --where, "
        "otherwise no limit)"
    )
    parser.add_argument("--timeout", type=parse_duration, metavar="TIME", help=timeout_help)
    memory_help = (
        "end the query if this process needs more memory, as in 512MiB, with exit code 4 (default: half of this "
        "machine's with --sql or --where, otherwise no limit)"
    )
    parser.add_argument("--memory", type=file_size, metavar="SIZE", help=memory_help)
    add_engine_argument(parser, "run the query on Spark, for results that are too large for one process")


def check(arguments: argparse.Namespace) -> None:
    """Check that the options do not conflict.

    Raises:
        JobError: for the first conflict.
    """
    _check_limits(arguments)
    if arguments.tables or arguments.describe is not None:
        _check_tables(arguments)
    if arguments.limit < 0:
        raise JobError(f"--limit: expected 0 or more, found {arguments.limit}")
    if arguments.start and arguments.end and arguments.start >= arguments.end:
        raise JobError(f"--from {arguments.start} is not before --to {arguments.end}")
    if arguments.table != "messages" and any(getattr(arguments, name) not in (None, []) for name in _CONDITIONS):
        raise JobError(
            f"the table {arguments.table} accepts no condition except --where", "the other conditions are for messages"
        )
    if arguments.grep is not None:
        _check_grep(arguments)
    if arguments.via == "hbase":
        _check_hbase(arguments)
    elif arguments.hbase or arguments.hbase_table:
        raise JobError("--hbase and --hbase-table need --via hbase")
    if arguments.body:
        _check_body(arguments)
    elif arguments.stored_body and arguments.sql is None:
        raise JobError("--stored-body needs --body")


def limits_of(arguments: argparse.Namespace) -> Limits:
    """Return the limits of a query: those given, or the defaults for the SQL of a user; none if it runs elsewhere."""
    is_free = arguments.sql is None and arguments.where is None
    timeout, memory = arguments.timeout, arguments.memory
    if timeout is None and not is_free:
        timeout = TIMEOUT
    if memory is None and not is_free:
        memory = default_memory()
    is_elsewhere = _runs_elsewhere(arguments)
    return Limits(
        "query",
        None if is_elsewhere else timeout,
        None if is_elsewhere else memory,
        "the query needs more memory than --memory allows",
        "the query takes longer than --timeout allows",
        "ask for less, for example with a condition on store_date; or raise the limit; or use --spark",
    )


def _runs_elsewhere(arguments: argparse.Namespace) -> bool:
    return bool(arguments.engine == Engine.SPARK or arguments.via == "hbase")


def _check_limits(arguments: argparse.Namespace) -> None:
    for name in ("timeout", "memory"):
        if getattr(arguments, name) is not None and _runs_elsewhere(arguments):
            raise JobError(
                f"--{name} limits a query in this process", "leave out --spark and --via hbase, or the limit"
            )


def _check_tables(arguments: argparse.Namespace) -> None:
    option = "--tables" if arguments.tables else "--describe"
    if arguments.tables and arguments.describe is not None:
        raise JobError("--tables and --describe cannot be used together")
    for name in (*_CONDITIONS, "where", "sql", "grep", "columns", "order_by", "body"):
        if getattr(arguments, name) not in (None, [], False):
            shown = {"start": "from", "end": "to"}.get(name, name).replace("_", "-")
            raise JobError(f"--{shown} has no effect with {option}")


def _check_grep(arguments: argparse.Namespace) -> None:
    if arguments.table != "messages":
        raise JobError(f"--grep searches messages, found --table {arguments.table}")
    if arguments.via == "hbase":
        raise JobError("--grep and --via hbase cannot be used together", "HBase has no bodies")
    for option in ("sql", "order_by", "body_out"):
        if getattr(arguments, option) is not None:
            raise JobError(f"--grep and --{option.replace('_', '-')} cannot be used together")
    for option in ("body", "stored_body"):
        if getattr(arguments, option):
            raise JobError(
                f"--grep and --{option.replace('_', '-')} cannot be used together",
                "it shows an excerpt; --id MSG_ID --body prints the body of one message",
            )


def _check_hbase(arguments: argparse.Namespace) -> None:
    if arguments.table != "messages":
        raise JobError(f"--via hbase reads only the table messages: leave out --table {arguments.table}")
    for option in ("where", "order_by"):
        if getattr(arguments, option) is not None:
            raise JobError(f"--{option.replace('_', '-')} needs --via delta", "HBase looks up by id, key, or topic")
    if arguments.engine != Engine.DELTALAKE:
        refuse_spark(arguments, "--via hbase and --spark cannot be used together")
    if not (arguments.id or arguments.key or arguments.topic):
        raise JobError("--via hbase needs one of --id, --key and --topic", "HBase can look up messages only by these")


def _check_body(arguments: argparse.Namespace) -> None:
    if arguments.table != "messages":
        raise JobError(f"--body prints bodies of messages, found --table {arguments.table}")
    if arguments.count:
        raise JobError("--body and --count cannot be used together")
    if arguments.output == "table":
        if arguments.columns is not None:
            raise JobError("--body prints no columns", "with --format json, jsonl or csv it adds the body to them")
    elif arguments.body_out is not None:
        raise JobError(f"--body-out writes a single body, found --format {arguments.output}")
    elif not 1 <= arguments.limit <= MAX_BODY_ROWS:
        raise JobError(
            f"--body with --format {arguments.output}: expected --limit 1 to {MAX_BODY_ROWS}, found {arguments.limit}",
            "for more, commitlake.connectors.lake.packs.spark_reader.with_bodies reads pack by pack",
        )
