"""Keep a typed Delta table for each configured topic: columns instead of bodies.

    commitlake topics --lake /data/lake --topics-file topics.toml
    commitlake topics learn --lake /data/lake --topics-file topics.toml --topic orders --apply

`learn` proposes a schema from a sample of a topic's messages, without Spark.
Runs on Spark, in the session that is there, or in one that it starts. It reads `messages` and the packs, and writes
the tables `topics/NAME`, `topics/NAME_current` (of change events), `topic_misfits` and `topic_schemas` of the lake. A
run continues where the last one ended; one that is killed is completed by the next. If a topic fails, the others are
still updated. Exit codes: 0; 1 for a failure of a service; 2 for a wrong lake, file of topics, schema, primary key or
option; 3 if messages do not fit the schema of a topic without `on_misfit = "quarantine"`, or a body is damaged; 4 if
another run was first.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commitlake.jobs.arguments.lake_location import LakeArguments, open_lake_argument
from commitlake.jobs.arguments.similar_names import print_warning
from commitlake.jobs.arguments.stores import positive
from commitlake.jobs.cli.command import Command, JobError
from commitlake.jobs.cli.options import argument, flag, only_for_actions, option, repeated
from commitlake.jobs.report.output_formats import JsonArgument, OutputArguments
from commitlake.schemas.errors import CommitLakeError, ExitCode
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.report_columns import Column
from commitlake.schemas.times import format_iso_time

if TYPE_CHECKING:
    from commitlake.connectors.lake.lake import Lake
    from commitlake.pipelines.topics.topic_config import TopicConfig

_PROGRAM = "commitlake topics"
_NO_KEY = "the events of one source table do not say a primary key whose fields are in the schema; name it with key"
UPDATE, LEARN = "update", "learn"
DESCRIPTION = (
    "Keep a typed Delta table for each configured topic: JSON bodies become columns, by a JSON Schema. Each message of "
    "a topic is once a row of its table, or once a row of topic_misfits with the reason and the field at fault. Change "
    "events of Canal, Debezium and Maxwell become rows with the values before and after, and the source's current rows."
)
EXAMPLES = (
    ("topics --lake /data/lake --topics-file topics.toml", "update the tables of all topics in the file"),
    ("topics --lake /data/lake --topics-file topics.toml --topic orders", "only that of one topic"),
    ("topics learn --lake /data/lake --topics-file topics.toml --topic orders", "propose a schema for a topic"),
    ("topics learn --lake /data/lake --topics-file topics.toml --topic orders --apply", "and write it into its file"),
)
COLUMNS = (
    Column("topic"), Column("table", 3), Column("added", is_number=True), Column("misfits", is_number=True),
    Column("unknown", 2, key="with_unknown_fields", is_number=True), Column("rows", is_number=True),
    Column("all misfits", 1, key="all_misfits", is_number=True), Column("newest", 4),
    Column("current", 2, key="current_rows", is_number=True), Column("deleted", 5, key="deleted_rows", is_number=True),
    Column("schema", 5, is_number=True), Column("error", 6),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Topics(
    Command, LakeArguments, OutputArguments, JsonArgument,
    after=dict.fromkeys((OutputArguments, JsonArgument), "topic"),
):  # fmt: skip
    """The command `topics`, which keeps a typed table for each configured topic."""

    NAME = "topics"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    action: str = argument(
        "what to do: update the tables, or learn a schema from a sample of a topic's messages (default: update)",
        choices=(UPDATE, LEARN),
        default=UPDATE,
    )
    topics_file: str = option("the TOML file that names the topics and their schemas", metavar="FILE", required=True)
    topic: tuple[str, ...] = repeated("only this topic of the file", metavar="TOPIC")
    again: bool = flag(
        "read all messages again, and add those that a table lacks, as an audit may find",
        rules=only_for_actions(UPDATE),
    )
    sample: int = option("learn: number of messages to read, about", parse=positive, default=10_000, metavar="N")
    apply: bool = flag(
        "learn: write the schema into the topic's file; fields that the file has keep their types",
        rules=only_for_actions(LEARN),
    )

    def run(self) -> ExitCode:
        """Update the tables, print a row for each topic, and report messages that do not fit."""
        from commitlake.jobs.report.rows_output import write_rows
        from commitlake.pipelines.topics.topic_config import choose_topics, read_topic_configs

        path = Path(self.topics_file)
        configs = choose_topics(read_topic_configs(path), self.topic, path)
        lake = open_lake_argument(self)
        lake.table("messages")
        if self.action == LEARN:
            for config in configs:
                _learn_schema(self, lake, config)
            return ExitCode.OK
        codes: list[ExitCode] = []
        rows = list(_update_topics(lake, configs, codes, reads_all=self.again, is_quiet=self.quiet))
        names: Sequence[str] = list(rows[0]) if self.output == "csv" else COLUMNS
        write_rows(self.output, rows, names, ())
        return max(codes, default=ExitCode.OK)


def _learn_schema(command: Topics, lake: Lake, config: TopicConfig) -> None:
    """Print the schema that a sample of a topic's messages has, with what its file has; write it if that is wanted."""
    from commitlake.pipelines.topics.json_schema import parse_json_schema
    from commitlake.pipelines.topics.schema_learning import add_new_fields, learn_schema, sample_bodies

    if config.changes is not None:
        raise JobError(
            f"topic {config.topic}: expected a topic with documents, found {config.changes.name}",
            "write the schema of a row of the source's table into its file",
        )
    learned = learn_schema(sample_bodies(lake, config.topic, command.sample))
    found = learned.to_json_schema()
    if "properties" not in found:
        raise JobError(
            f"topic {config.topic}: expected JSON objects with fields, found none in "
            f"{learned.documents + learned.others:,} messages",
            "check the topic's name, and whether its bodies are JSON",
        )
    added = list(found["properties"])
    if config.schema_file.exists():
        text = config.schema_file.read_text(encoding="utf-8")
        parse_json_schema(text, str(config.schema_file))
        found, added = add_new_fields(json.loads(text), found)
    text = json.dumps(found, ensure_ascii=False, indent=2) + "\n"
    print(text, end="")
    if not command.quiet:
        others = f"; {learned.others:,} others are no JSON objects" if learned.others else ""
        print(f"{config.topic}: {format_count(learned.documents, 'document')} read{others}", file=sys.stderr)
        print(f"{config.topic}: new fields: {', '.join(added) or 'none'}", file=sys.stderr)
    if command.apply and added:
        config.schema_file.write_text(text, encoding="utf-8")
    elif added and not command.quiet:
        print(f"{config.topic}: nothing was written; --apply writes {config.schema_file}", file=sys.stderr)


def _update_topics(
    lake: Lake, configs: Sequence[TopicConfig], codes: list[ExitCode], *, reads_all: bool, is_quiet: bool
) -> Iterator[dict[str, Any]]:
    """Update the table of each topic, and yield a row on it; add to `codes` what is not in order."""
    from commitlake.jobs.arguments.runner import get_spark_session
    from commitlake.pipelines.topics.table_summary import summarize_topic_table
    from commitlake.pipelines.topics.table_update import TopicTableUpdater

    spark = get_spark_session("topics", lake.s3)
    for config in configs:
        error = ""
        added = misfits = with_unknown = schema = 0
        try:
            done = TopicTableUpdater(spark, lake, config).update(reads_all=reads_all)
            added, misfits, with_unknown, schema = done.rows, done.misfits, done.with_unknown, done.schema
        except CommitLakeError as failure:
            error = str(failure)
            codes.append(failure.exit_code or ExitCode.FAILED)
            print_warning(_PROGRAM, error)
        if misfits and config.on_misfit is None:
            codes.append(ExitCode.DAMAGE)
        found = summarize_topic_table(lake, config)
        newest = None if found.newest is None else format_iso_time(found.newest, "milliseconds")
        if not is_quiet:
            _print_notes(lake, config, misfits, with_unknown)
            if config.changes is not None and found.rows and found.current_rows is None and not error:
                print(f"{config.topic}: no table of current rows: {_NO_KEY}", file=sys.stderr)
        yield {
            "topic": config.topic, "table": config.lake_table, "added": added, "misfits": misfits,
            "with_unknown_fields": with_unknown, "rows": found.rows, "all_misfits": sum(found.misfits.values()),
            "misfits_by_reason": dict(found.misfits), "newest": newest, "current_rows": found.current_rows,
            "deleted_rows": found.deleted_rows, "schema": schema, "error": error or None,
        }  # fmt: skip


def _print_notes(lake: Lake, config: TopicConfig, misfits: int, with_unknown: int) -> None:
    if misfits:
        count = format_count(misfits, "message does not fit", "messages do not fit")
        print(
            f"{config.topic}: {count} the schema; this shows why: commitlake query --lake {lake.root} "
            f"--table topic_misfits --topic {shlex.quote(config.topic)}",
            file=sys.stderr,
        )
    if with_unknown:
        count = format_count(with_unknown, "new row has", "new rows have")
        print(f"{config.topic}: {count} fields that the schema lacks; they are in _unknown", file=sys.stderr)


build_parser, main = Topics.parser, Topics.main
