"""The options of `query`, and the checks of their combinations."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import ClassVar

from commitlake.connectors.lake.sql import Engine
from commitlake.jobs.arguments.durations import parse_duration
from commitlake.jobs.arguments.lake_location import LakeArguments
from commitlake.jobs.arguments.query_engine import EngineArguments, is_spark_option_given
from commitlake.jobs.arguments.selection import WHICH, Brokers, Ids, Keys, Kinds, Predicate, Queues, TimeRange, Topics
from commitlake.jobs.arguments.stores import make_integer_parser, parse_file_size
from commitlake.jobs.cli.command import Command, JobError
from commitlake.jobs.cli.options import conflicts_with, flag, option, overrides, requires_one_of, shorthand_option
from commitlake.jobs.cli.sql_limits import TIMEOUT, QueryLimits, default_memory_limit
from commitlake.jobs.query.bodies import MAX_BODY_ROWS
from commitlake.jobs.report.output_formats import OutputArguments
from commitlake.schemas.tables.lake_tables import LAKE_TABLES

_CONDITIONS = ("topic", "queue", "kind", "key", "id", "broker", "start", "end")
_OF_TABLE = overrides(*_CONDITIONS, "where", "sql", "grep", "columns", "order_by", "body", "body_out")
_OF_SELECT = overrides(
    *_CONDITIONS, "where", "columns", "order_by", "count", "body", "body_out", hint="express it in the SELECT"
)
_EXCERPT = "it shows an excerpt; --id MSG_ID --body prints the body of one message"
_LOOK_UPS = "HBase looks up by id, key, or topic"
_IN_THIS_PROCESS = conflicts_with(
    "engine spark", "via hbase", hint="{this} limits a query in this process: leave one of them out"
)


def _parse_optional_text(text: str) -> str | None:
    """Return the text, or None for an empty one, such as the value of an empty environment variable."""
    return text or None


@dataclass(frozen=True, kw_only=True)
class QueryOptions(
    Command,
    LakeArguments,
    Topics,
    Queues,
    Kinds,
    Keys,
    Ids,
    Brokers,
    TimeRange,
    Predicate,
    OutputArguments,
    EngineArguments,
    after={
        **dict.fromkeys((Topics, Queues, Kinds, Keys, Ids, Brokers, TimeRange), "table"),
        Predicate: "describe",
        OutputArguments: "stored_body",
        EngineArguments: "memory",
    },
):
    """The options of `query`."""

    table: str = option(
        "the table to query (default: messages)",
        choices=tuple(LAKE_TABLES),
        default="messages",
        rules=(
            *conflicts_with(*_CONDITIONS, hint="{other} selects messages: --where selects rows of any table"),
            *conflicts_with("grep", "via hbase", "body", "body_out", hint="{other} is for the table messages"),
        ),
    )
    sql: str | None = option(
        f"any SELECT over the lake's tables, also with aggregates: {', '.join(LAKE_TABLES)}; nothing else is accepted, "
        "and --limit counts its rows. Among the selected columns, body() is a message's body, or body(t) if messages "
        "has the alias t. With --spark it is Spark's SQL",
        metavar="SELECT",
        rules=(
            *_OF_SELECT,
            *overrides("table", hint="name the tables in the SELECT"),
            *requires_one_of("via delta", hint="{this} can query only the lake: leave --via out"),
        ),
    )
    tables: bool = flag(
        "print the lake's tables, with their number of rows", rules=(*conflicts_with("describe"), *_OF_TABLE)
    )
    describe: str | None = option(
        "print the columns of a table, with their types and contents", metavar="TABLE", rules=_OF_TABLE
    )
    where: str | None = option(
        "any predicate over the table's columns",
        metavar="SQL",
        section=WHICH,
        rules=requires_one_of("via delta", hint=_LOOK_UPS),
    )
    grep: str | None = option(
        "search the bodies of the messages for a regular expression (RE2's syntax, over bytes), on all cores or, with "
        "--spark, on Spark; the output shows the first match",
        metavar="REGEX",
        rules=(
            *conflicts_with("via hbase", hint="HBase has no bodies"),
            *conflicts_with("sql", "order_by", "body_out"),
            *conflicts_with("body", "stored_body", hint=_EXCERPT),
        ),
    )
    columns: str | None = option(
        "the columns to print (default: the main ones in a table, otherwise all)", metavar="A,B"
    )
    order_by: str | None = option(
        "sort by these columns, 'A desc' for descending order (default: store time)",
        metavar="A,B",
        rules=requires_one_of("via delta", hint=_LOOK_UPS),
    )
    count: bool = flag("print only the number of rows")
    limit: int = option(
        "largest number of rows, 0 for all (default: 100)", parse=make_integer_parser(0), default=100, metavar="N"
    )
    body: bool = flag(
        "print only the body of the one matching message; with --format json, jsonl or csv the body of each row",
        rules=conflicts_with("count"),
    )
    body_out: str | None = option(
        "write the body to a file; implies --body",
        metavar="FILE",
        rules=(*conflicts_with("count"), *requires_one_of("output table", hint="{this} writes a single body")),
    )
    stored_body: bool = flag(
        "print the body as the broker stored it, possibly compressed", rules=requires_one_of("body", "body_out", "sql")
    )
    via: str = option(
        "where to look up messages: the lake's table, or HBase (default: delta)",
        choices=("delta", "hbase"),
        default="delta",
        rules=requires_one_of("id", "key", "topic", hint="HBase can look up messages only by these"),
    )
    hbase: str | None = option(
        "HBase's Thrift server (default: localhost:9090)",
        parse=_parse_optional_text,
        metavar="HOST[:PORT]",
        rules=requires_one_of("via hbase"),
    )
    hbase_table: str | None = option(
        "name of the table in HBase (default: commitlake_messages)",
        parse=_parse_optional_text,
        metavar="NAME",
        rules=requires_one_of("via hbase"),
    )
    timeout: datetime.timedelta | None = option(
        "end the query after this time, with exit code 4; 0s for no limit (default: 10m with --sql or --where, "
        "otherwise no limit)",
        parse=parse_duration,
        metavar="TIME",
        rules=_IN_THIS_PROCESS,
    )
    memory: int | None = option(
        "end the query if this process needs more memory, as in 512MiB, with exit code 4 (default: half of this "
        "machine's with --sql or --where, otherwise no limit)",
        parse=parse_file_size,
        metavar="SIZE",
        rules=_IN_THIS_PROCESS,
    )
    spark: ClassVar = shorthand_option(
        "run the query on Spark, for results that are too large for one process", engine=str(Engine.SPARK)
    )

    @property
    def prints_bodies(self) -> bool:
        """True if the query prints or writes the bodies of messages."""
        return self.body or self.body_out is not None

    def check_combinations(self) -> None:
        """Check combinations and values that the option declarations cannot express.

        Raises:
            JobError: for the first conflict.
        """
        if self.via == "hbase" and is_spark_option_given(self):
            raise JobError("--via hbase and --spark cannot be used together: leave one of them out")
        if not self.prints_bodies:
            return
        if self.output == "table" and self.columns is not None:
            raise JobError(
                "--columns has no effect with --body --format table, which prints only the body",
                "with --format json, jsonl or csv it adds the body to them",
            )
        if self.output != "table" and not 1 <= self.limit <= MAX_BODY_ROWS:
            raise JobError(
                f"--body with --format {self.output}: expected --limit N with 1 to {MAX_BODY_ROWS}, found {self.limit}",
                "for more, commitlake.connectors.lake.packs.spark_reader.with_bodies reads pack by pack",
            )

    def limits(self) -> QueryLimits:
        """Return the query's time and memory limits, given or default; none if the query runs on Spark or HBase."""
        is_free = self.sql is None and self.where is None
        timeout = TIMEOUT if self.timeout is None and not is_free else self.timeout
        memory = default_memory_limit() if self.memory is None and not is_free else self.memory
        return QueryLimits(
            "query",
            None if self._runs_in_other_process else timeout,
            None if self._runs_in_other_process else memory,
            "the query needs more memory than --memory allows",
            "the query takes longer than --timeout allows",
            "ask for less, for example with a condition on store_date; or raise the limit; or use --spark",
        )

    @property
    def _runs_in_other_process(self) -> bool:
        return self.is_on_spark or self.via == "hbase"
