"""What `query` can be asked on a command line, and what does not go together."""

from __future__ import annotations

import argparse

from commitlake.connectors.lake.sql import Engine
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.output_forms import add_format_argument
from commitlake.jobs.cli.places import add_place_arguments
from commitlake.jobs.cli.times import add_time_arguments
from commitlake.jobs.query.bodies import MOST_ROWS
from commitlake.schemas.layouts.rocketmq.topics import Kind
from commitlake.schemas.tables.lake_tables import LAKE_TABLES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `query`."""
    add_place_arguments(parser)
    parser.add_argument(
        "--table", choices=tuple(LAKE_TABLES), default="messages", help="which table (default: messages)"
    )
    parser.add_argument("--topic", action="append", default=[], help="stored topic")
    parser.add_argument("--queue", type=int, help="queue id")
    parser.add_argument(
        "--kind", action="append", default=[], choices=[str(kind) for kind in Kind], help="kind of record"
    )
    parser.add_argument("--key", action="append", default=[], help="business key")
    parser.add_argument("--id", help="offset message id, or client message id (UNIQ_KEY)")
    parser.add_argument("--broker", action="append", default=[], help="the store's name")
    add_time_arguments(parser)
    sql_help = (
        f"any SELECT over the lake's tables, aggregates too: {', '.join(LAKE_TABLES)}; nothing else is accepted, and "
        "--limit counts its rows. Among the selected columns, body() is a message's body, or body(t) where messages is "
        "called t. "
        "With --engine spark it is Spark's SQL"
    )
    parser.add_argument("--sql", metavar="SELECT", help=sql_help)
    parser.add_argument("--where", metavar="SQL", help="any predicate over the table's columns")
    grep_help = (
        "search the bodies of the messages for a regular expression (RE2's syntax, over bytes), on all cores or, with "
        "--engine spark, on Spark; shows where the first match is"
    )
    parser.add_argument("--grep", metavar="REGEX", help=grep_help)
    parser.add_argument("--columns", metavar="A,B", help="which columns; a table shows the main ones, else all")
    parser.add_argument(
        "--order-by",
        metavar="A,B",
        help="sort by these columns, 'A desc' for the last ones first (default: store time)",
    )
    parser.add_argument("--count", action="store_true", help="print how many there are, and nothing else")
    parser.add_argument(
        "--limit", type=int, default=100, metavar="N", help="at most so many rows, 0 for all (default: 100)"
    )
    parser.add_argument("--body", action="store_true", help="the body of the one message that is found, and nothing "
                        "else; with --format json, jsonl or csv the body of each row")  # fmt: skip
    parser.add_argument("--body-out", metavar="FILE", help="write the one body to a file; implies --body")
    parser.add_argument("--stored-body", action="store_true", help="as the broker stored it, perhaps compressed")
    add_format_argument(parser)
    parser.add_argument("--via", choices=("delta", "hbase"), default="delta",
                        help="where to look: the lake's table, or HBase (default: delta)")  # fmt: skip
    parser.add_argument("--hbase", metavar="HOST[:PORT]", help="HBase's Thrift server (default: localhost:9090)")
    parser.add_argument("--hbase-table", metavar="NAME", help="the table there (default: commitlake_messages)")
    parser.add_argument("--engine", choices=[str(engine) for engine in Engine], default=str(Engine.DELTALAKE),
                        help="what answers (default: deltalake)")  # fmt: skip


def check(arguments: argparse.Namespace) -> None:
    """Refuse what does not go together.

    Raises:
        JobError: naming it.
    """
    if arguments.limit < 0:
        raise JobError(f"--limit: expected 0 or more, found {arguments.limit}")
    if arguments.start and arguments.end and arguments.start >= arguments.end:
        raise JobError(f"--from {arguments.start} is not before --to {arguments.end}")
    conditions = ("topic", "queue", "kind", "key", "id", "broker", "start", "end")
    if arguments.table != "messages" and any(getattr(arguments, name) not in (None, []) for name in conditions):
        raise JobError(f"the table {arguments.table} takes --where only", "the other conditions are of messages")
    if arguments.grep is not None:
        _check_grep(arguments)
    if arguments.via == "hbase":
        _check_hbase(arguments)
    elif arguments.hbase or arguments.hbase_table:
        raise JobError("--hbase and --hbase-table go with --via hbase")
    if arguments.body:
        _check_body(arguments)
    elif arguments.stored_body and arguments.sql is None:
        raise JobError("--stored-body goes with --body")


def _check_grep(arguments: argparse.Namespace) -> None:
    if arguments.table != "messages":
        raise JobError(f"--grep is of messages, found --table {arguments.table}")
    if arguments.via == "hbase":
        raise JobError("--grep and --via hbase do not go together", "HBase has no bodies")
    for option in ("sql", "order_by", "body_out"):
        if getattr(arguments, option) is not None:
            raise JobError(f"--grep and --{option.replace('_', '-')} do not go together")
    for option in ("body", "stored_body"):
        if getattr(arguments, option):
            raise JobError(
                f"--grep and --{option.replace('_', '-')} do not go together",
                "it shows an excerpt; --id MSG_ID --body prints the body of one message",
            )


def _check_hbase(arguments: argparse.Namespace) -> None:
    if arguments.table != "messages":
        raise JobError(f"--via hbase is of messages, found --table {arguments.table}")
    for option in ("where", "order_by"):
        if getattr(arguments, option) is not None:
            raise JobError(f"--{option.replace('_', '-')} is for --via delta", "HBase looks up by id, key, or topic")
    if arguments.engine != Engine.DELTALAKE:
        raise JobError(f"--via hbase and --engine {arguments.engine} do not go together")
    if not (arguments.id or arguments.key or arguments.topic):
        raise JobError("--via hbase needs one of --id, --key and --topic", "HBase has no other keys to look by")


def _check_body(arguments: argparse.Namespace) -> None:
    if arguments.table != "messages":
        raise JobError(f"--body is of messages, found --table {arguments.table}")
    if arguments.count:
        raise JobError("--body and --count do not go together")
    if arguments.output == "table":
        if arguments.columns is not None:
            raise JobError("--body prints no columns", "with --format json, jsonl or csv it adds the body to them")
    elif arguments.body_out is not None:
        raise JobError(f"--body-out is for one body, found --format {arguments.output}")
    elif not 1 <= arguments.limit <= MOST_ROWS:
        raise JobError(
            f"--body with --format {arguments.output}: expected --limit 1 to {MOST_ROWS}, found {arguments.limit}",
            "for more, commitlake.connectors.lake.packs.spark_reader.with_bodies reads pack by pack",
        )
