"""Show what happened to the messages of a business key, a message id or an offset.

    commitlake lineage --lake /data/lake --key order-4711

Reads `message_keys`, `edges`, `messages` and `consumer_offsets`, as the question requires, and writes the story to
standard output: a tree, a table, JSON or a Mermaid flowchart. With `--html` it also writes a page with the picture.
`--topics` shows which topics feed which. It starts no JVM, unless `--spark` is given: with `--keys-file`, tasks on
Spark then read the stories of some thousand keys each.

Exit codes: 0, also if nothing is found; 1 if `--follow` gave up, or a server did not accept the events; 2 for a wrong
lake or option; 3 for a damaged table, or if the lake has lost messages that may belong to the story.
"""

from __future__ import annotations

import datetime
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote

from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.arguments.keys_file import read_keys
from commitlake.jobs.arguments.lake_location import open_lake_argument, open_packs
from commitlake.jobs.arguments.runner import make_runner
from commitlake.jobs.arguments.similar_names import print_warning, suggest_similar_name
from commitlake.jobs.cli.damaged_file_errors import explain_damaged_files
from commitlake.jobs.cli.terminal import print_line, unguarded_stream
from commitlake.jobs.lineage.arguments import (
    JSON,
    MERMAID,
    TABLE,
    TITLE,
    LineageOptions,
    check_options,
    make_story_question,
    read_masks,
    split_options_by_id,
)
from commitlake.jobs.report.rows_output import write_table, write_table_block
from commitlake.pipelines.lineage.history_masking import mask_story
from commitlake.pipelines.lineage.history_reader import read_stories, read_story_and_rows
from commitlake.pipelines.lineage.message_history import Story
from commitlake.pipelines.lineage.table_lookups import Row
from commitlake.pipelines.lineage.value_texts import approximate_duration_text
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count

DESCRIPTION = (
    "Show what happened to the messages of a business key, a message id or an offset: sent, delayed, retried, "
    "committed, dead, redriven, consumed; with times, gaps, and the outcome in each consumer group. The output says "
    "what offsets prove and what they do not. The steps come from the table 'edges', which 'archive' fills."
)
EXAMPLES = (
    ("lineage --lake lake --key order-4711", "what happened to an order"),
    ("lineage --lake lake --id 0A00000100002A9F0000000000001000", "an offset message id, or a client's UNIQ_KEY"),
    ("lineage --lake lake --offset broker-a:4096 --depth 1", "a record, and its direct neighbours"),
    ("lineage --lake lake --key order-4711 --html order.html --body --mask body.email=hash", "a page with the picture"),
    ("lineage --lake lake --key order-4711 --format mermaid", "a diagram for a ticket"),
    ("lineage --lake lake --key order-4711 --related-by customer", "also what happened to the same customer"),
    ("lineage --lake lake --key order-4711 --follow", "new steps as they are archived"),
    ("lineage --lake lake --keys-file keys.txt --format json", "what happened to each of many orders"),
    (
        "lineage --lake s3://archive/lake --keys-file keys.txt --format json --spark",
        "of hundreds of thousands of orders",
    ),
    ("lineage --lake lake --topics --from -1d --to now", "which topics feed which"),
    ("lineage --lake lake --key order-4711 --openlineage http://marquez:5000", "for a tool that reads OpenLineage"),
)
_READ = ("messages", "message_keys", "edges", "consumer_offsets", "gaps", "topic_minutes")
_FOLLOWED = datetime.timedelta(minutes=10)


@dataclass(frozen=True, kw_only=True)
class Lineage(LineageOptions):
    """The command `lineage`, which shows what happened to messages: delays, retries, dead letters, consumption."""

    NAME = "lineage"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    def run(self) -> ExitCode:
        """Find what happened to the selected messages, print it, and report the time taken."""
        started = time.monotonic()
        check_options(self)
        lake = open_lake_argument(self)
        if self.openlineage is not None:
            from commitlake.jobs.lineage.openlineage import check_event_target

            check_event_target(self.openlineage)
        with explain_damaged_files(lake, _READ):
            if self.topics:
                return _show_topics(self, lake, started)
            if self.follow:
                return _follow_story(self, lake)
            keys = list(dict.fromkeys([*self.key, *(read_keys(self.keys_file) if self.keys_file else ())]))
            if len(keys) + len(self.id) <= 1:
                return _show_story(replace(self, key=tuple(keys)), lake, started)
            code = _show_stories_of_keys(self, lake, keys, started) if keys else ExitCode.OK
            for number, one in enumerate(split_options_by_id(self)):
                if number or keys:
                    print()
                code = max(code, _show_story(one, lake, started))
            return code


def _show_story(command: LineageOptions, lake: Lake, monotonic_start: float) -> ExitCode:
    facts = [("Lake", command.lake)]
    with command.open_page("lineage", TITLE, facts) as file:
        story = _read_story(command, lake)
        if file is not None:
            from commitlake.jobs.lineage.report import lineage_report

            file.write(lineage_report(story, facts))
        return _print_story(command, story, monotonic_start)


def _show_stories_of_keys(command: LineageOptions, lake: Lake, keys: Sequence[str], started: float) -> ExitCode:
    """Print what happened to the messages of each key; the tables are read once for all keys."""
    code = ExitCode.OK
    question = make_story_question(replace(command, key=tuple(keys[:1]), id=()), lake)
    lake.table("messages")  # before a JVM starts: without a lake, this raises an error
    edit_story = _story_editor(command, lake)
    runner = make_runner(command, "lineage") if command.is_on_spark else None
    for number, (story, rows) in enumerate(read_stories(lake, keys, question, runner)):
        if number:
            print()
        code = max(code, _print_story(command, edit_story(story, rows), started))
    return code


def _read_story(command: LineageOptions, lake: Lake) -> Story:
    story, rows = read_story_and_rows(lake, make_story_question(command, lake))
    return _story_editor(command, lake)(story, rows)


def _story_editor(command: LineageOptions, lake: Lake) -> Callable[[Story, Sequence[Row]], Story]:
    """Return a function that adds bodies to a story if requested, and masks the values that the options select."""
    masks, key = read_masks(command)
    packs = open_packs(lake) if command.body else None

    def edit_story(story: Story, rows: Sequence[Row]) -> Story:
        if command.related_by is not None and story.steps:
            _warn_of_unknown_property(command.related_by, story)
        if packs is not None:
            from commitlake.pipelines.lineage.record_bodies import add_bodies_to_story

            story = add_bodies_to_story(story, rows, packs)
        return mask_story(story, masks, key)

    return edit_story


def _warn_of_unknown_property(name: str, story: Story) -> None:
    known = {each for record in story.records for each in record.properties}
    if name not in known:
        print_warning(
            "commitlake lineage", f"no matching record has the property {name!a}.{suggest_similar_name(name, known)}"
        )


def _print_story(command: LineageOptions, story: Story, monotonic_start: float) -> ExitCode:
    if command.openlineage is not None:
        from commitlake.jobs.lineage.openlineage import story_events

        _write_events(command, story_events(story))
    if command.format == JSON:
        from commitlake.jobs.lineage.story_json import story_json

        unguarded_stream(sys.stdout).write(story_json(story))
    elif command.format == MERMAID:
        from commitlake.jobs.lineage.picture.mermaid import story_flowchart

        sys.stdout.write(story_flowchart(story))
    elif command.format == TABLE:
        from commitlake.jobs.lineage.story_json import STEP_COLUMNS, step_rows

        write_table(step_rows(story), STEP_COLUMNS, sys.stdout)
    elif story.steps:
        from commitlake.jobs.lineage.story_tree import write_tree

        write_tree(story, sys.stdout)
    for sentence in story.missing:
        print_warning("commitlake lineage", sentence)
    if not command.quiet:
        print_line(_story_summary(story, time.monotonic() - monotonic_start))
    return ExitCode.DAMAGE if story.missing else ExitCode.OK


def _story_summary(story: Story, seconds: float) -> str:
    if not story.steps:
        why = "".join(f"; {caution}" for caution in story.cautions)
        return f"no message in the lake has {story.asked}{why} ({seconds:.1f} s)"
    more = f", and {format_count(story.not_shown, 'record')} more match" if story.not_shown else ""
    steps, outcomes = format_count(len(story.steps), "step"), format_count(len(story.outcomes), "outcome")
    return f"{steps}, {outcomes}{more} ({seconds:.1f} s)"


def _write_events(command: LineageOptions, events: object) -> None:
    from commitlake.jobs.lineage.openlineage import API_KEY_VARIABLE, write_events

    count = write_events(events, command.openlineage, os.environ.get(API_KEY_VARIABLE, ""))  # type: ignore[arg-type]
    if not command.quiet:
        print_line(f"{format_count(count, 'OpenLineage event')} to {command.openlineage}")


def _follow_story(command: LineageOptions, lake: Lake) -> ExitCode:
    from commitlake.jobs.lineage.story_follower import follow_story

    timeout = command.follow_for or _FOLLOWED

    def print_progress_line(line: str) -> None:
        print(line, flush=True)

    is_final = follow_story(
        lambda: _read_story(command, lake), print_progress_line, time.sleep, time.monotonic, timeout
    )
    if not command.quiet:
        print_line(
            "each outcome is final"
            if is_final
            else f"not all outcomes are final after {approximate_duration_text(timeout)}"
        )
    return ExitCode.OK if is_final else ExitCode.FAILED


def _show_topics(command: LineageOptions, lake: Lake, monotonic_start: float) -> ExitCode:
    from commitlake.jobs.lineage.topic_graph import GRAPH_TITLE, graph_json, graph_mermaid, links_table, topics_report
    from commitlake.pipelines.lineage.topic_graph import build_topic_graph

    assert command.start is not None, "--topics needs --from"
    assert command.end is not None, "--topics needs --to"
    facts = [("Lake", command.lake)]
    with command.open_page("lineage", GRAPH_TITLE, facts) as file:
        graph = build_topic_graph(lake, command.start, command.end)
        if file is not None:
            file.write(topics_report(graph, facts))
    if command.openlineage is not None:
        from commitlake.jobs.lineage.openlineage import graph_events

        is_uri = command.lake.startswith("file:")  # as a catalog has it
        name = os.path.basename(command.lake.rstrip("/"))  # noqa: PTH119 (it may be a URL)
        _write_events(command, graph_events(graph, f"rocketmq://{quote(unquote(name) if is_uri else name)}"))
    if command.format == JSON:
        unguarded_stream(sys.stdout).write(graph_json(graph))
    elif command.format == MERMAID:
        sys.stdout.write(graph_mermaid(graph))
    else:
        write_table_block(links_table(graph), sys.stdout)
    if not command.quiet:
        more = f", and {graph.not_shown:,} more" if graph.not_shown else ""
        found = f"{format_count(len(graph.topics), 'topic')} with keys, {format_count(len(graph.links), 'link')}{more}"
        print_line(f"{found} ({time.monotonic() - monotonic_start:.1f} s)")
    return ExitCode.OK


build_parser, main = Lineage.parser, Lineage.main
