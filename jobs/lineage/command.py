"""Show what happened to the messages of a business key, a message id or an offset.

    commitlake lineage --lake /data/lake --key order-4711

Reads `message_keys`, `edges`, `messages` and `consumer_offsets`, as the question requires, and writes the story to
standard output: a tree, a table, JSON or a Mermaid flowchart. With `--html` it also writes a page with the picture.
`--topics` shows which topics feed which. It starts no JVM.

Exit codes: 0, also if nothing is found; 1 if `--follow` gave up, or a server did not accept the events; 2 for a wrong
lake or option; 3 for a damaged table, or if the lake has lost messages that may belong to the story.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import time
from collections.abc import Sequence
from urllib.parse import quote, unquote

from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.cli.command import job_parser, run_job
from commitlake.jobs.cli.damaged_files import naming_damaged_files
from commitlake.jobs.cli.names import did_you_mean, warn
from commitlake.jobs.cli.places import bodies_of, lake_of
from commitlake.jobs.cli.rows_output import Row, write_table
from commitlake.jobs.cli.terminal import print_line, trusted
from commitlake.jobs.cli.text_table import Column
from commitlake.jobs.cli.times import join_times
from commitlake.jobs.lineage.arguments import (
    JSON,
    MERMAID,
    TABLE,
    add_arguments,
    check,
    masks_of,
    one_by_one,
    question_of,
)
from commitlake.pipelines.lineage.answer import story_and_rows
from commitlake.pipelines.lineage.masked import mask_story
from commitlake.pipelines.lineage.story import Story
from commitlake.pipelines.lineage.value_texts import length_text
from commitlake.schemas.counts import count_text
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.times import iso_text

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
    ("lineage --lake lake --topics --from -1d --to now", "which topics feed which"),
    ("lineage --lake lake --key order-4711 --openlineage http://marquez:5000", "for a tool that reads OpenLineage"),
)
_READ = ("messages", "message_keys", "edges", "consumer_offsets")
STEP_COLUMNS = (
    Column("time"), Column("gap", 1, is_right=True), Column("kind", 2), Column("lane", 4), Column("title"),
    Column("text", 3), Column("id", 5, is_whole=True),
)  # fmt: skip
_FOLLOWED = datetime.timedelta(minutes=10)


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the job's arguments."""
    parser = job_parser("lineage", DESCRIPTION, EXAMPLES)
    add_arguments(parser)
    return parser


def job(arguments: argparse.Namespace) -> ExitCode:
    """Answer the question, print it, and report the time taken."""
    started = time.monotonic()
    check(arguments)
    lake = lake_of(arguments)
    if arguments.openlineage is not None:
        from commitlake.jobs.lineage.openlineage import check_target

        check_target(arguments.openlineage)
    with naming_damaged_files(lake, _READ):
        if arguments.topics:
            return _show_topics(arguments, lake, started)
        if arguments.follow:
            return _follow(arguments, lake)
        code = ExitCode.OK
        for number, one in enumerate(one_by_one(arguments)):
            if number:
                print()
            code = max(code, _show_story(one, lake, started))
        return code


def _show_story(arguments: argparse.Namespace, lake: Lake, started: float) -> ExitCode:
    if arguments.html is None:
        return _print_story(arguments, _story(arguments, lake), started)
    from commitlake.jobs.pages.lineage.page import TITLE, lineage_page
    from commitlake.jobs.pages.output import failure_page, page_file

    file = page_file(arguments.html)
    facts = [("Lake", arguments.lake)]
    with failure_page(file, "lineage", TITLE, facts):
        story = _story(arguments, lake)
        if file is not None:
            file.write(lineage_page(story, facts))
        return _print_story(arguments, story, started)


def _story(arguments: argparse.Namespace, lake: Lake) -> Story:
    question = question_of(arguments, lake)
    masks, key = masks_of(arguments)
    story, rows = story_and_rows(lake, question)
    if arguments.related_by is not None and story.steps:
        _explain_property(arguments.related_by, story)
    if arguments.body:
        from commitlake.pipelines.lineage.bodies import with_bodies

        story = with_bodies(story, rows, bodies_of(arguments, lake))
    return mask_story(story, masks, key)


def _explain_property(name: str, story: Story) -> None:
    known = {each for record in story.records for each in record.properties}
    if name not in known:
        warn("commitlake lineage", f"no matching record has the property {name!a}.{did_you_mean(name, known)}")


def _print_story(arguments: argparse.Namespace, story: Story, started: float) -> ExitCode:
    if arguments.openlineage is not None:
        from commitlake.jobs.lineage.openlineage import story_events

        _write_events(arguments, story_events(story))
    if arguments.format == JSON:
        from commitlake.jobs.lineage.story_json import story_json

        trusted(sys.stdout).write(story_json(story))
    elif arguments.format == MERMAID:
        from commitlake.jobs.pages.lineage.mermaid import mermaid

        sys.stdout.write(mermaid(story))
    elif arguments.format == TABLE:
        write_table(_rows(story), STEP_COLUMNS, sys.stdout)
    elif story.steps:
        from commitlake.jobs.lineage.tree import write_tree

        write_tree(story, sys.stdout)
    for sentence in story.missing:
        warn("commitlake lineage", sentence)
    if not arguments.quiet:
        print_line(_summary(story, time.monotonic() - started))
    return ExitCode.DAMAGE if story.missing else ExitCode.OK


def _summary(story: Story, seconds: float) -> str:
    if not story.steps:
        why = "".join(f"; {caution}" for caution in story.cautions)
        return f"no message in the lake has {story.asked}{why} ({seconds:.1f} s)"
    more = f", and {count_text(story.not_shown, 'record')} more match" if story.not_shown else ""
    return (
        f"{count_text(len(story.steps), 'step')}, {count_text(len(story.outcomes), 'outcome')}{more} ({seconds:.1f} s)"
    )


def _rows(story: Story) -> list[Row]:
    gaps = {edge.target: edge.gap for edge in story.edges}
    return [
        {
            "time": "" if step.at is None else iso_text(step.at, "milliseconds"),
            "gap": "" if (gap := gaps.get(step.id)) is None else length_text(gap),
            "kind": str(step.kind), "lane": step.lane, "title": step.title, "text": step.text, "id": step.id,
        }
        for step in story.steps
    ]  # fmt: skip


def _write_events(arguments: argparse.Namespace, events: object) -> None:
    from commitlake.jobs.lineage.openlineage import API_KEY_VARIABLE, write_events

    count = write_events(events, arguments.openlineage, os.environ.get(API_KEY_VARIABLE, ""))  # type: ignore[arg-type]
    if not arguments.quiet:
        print_line(f"{count_text(count, 'OpenLineage event')} to {arguments.openlineage}")


def _follow(arguments: argparse.Namespace, lake: Lake) -> ExitCode:
    from commitlake.jobs.lineage.follow import follow

    timeout = arguments.follow_for or _FOLLOWED

    def say(line: str) -> None:
        print(line, flush=True)

    is_final = follow(lambda: _story(arguments, lake), say, time.sleep, time.monotonic, timeout)
    if not arguments.quiet:
        print_line("each outcome is final" if is_final else f"not all outcomes are final after {length_text(timeout)}")
    return ExitCode.OK if is_final else ExitCode.FAILED


def _show_topics(arguments: argparse.Namespace, lake: Lake, started: float) -> ExitCode:
    from commitlake.jobs.lineage.topics import COLUMNS, graph_json, graph_mermaid, link_rows
    from commitlake.jobs.pages.lineage.topics import TITLE, topics_page
    from commitlake.jobs.pages.output import failure_page, page_file
    from commitlake.pipelines.lineage.topic_graph import topic_graph

    file = page_file(arguments.html)
    facts = [("Lake", arguments.lake)]
    with failure_page(file, "lineage", TITLE, facts):
        graph = topic_graph(lake, arguments.start, arguments.end)
        if file is not None:
            file.write(topics_page(graph, facts))
    if arguments.openlineage is not None:
        from commitlake.jobs.lineage.openlineage import graph_events

        is_uri = arguments.lake.startswith("file:")  # as a catalog has it
        name = os.path.basename(arguments.lake.rstrip("/"))  # noqa: PTH119 (it may be a URL)
        _write_events(arguments, graph_events(graph, f"rocketmq://{quote(unquote(name) if is_uri else name)}"))
    if arguments.format == JSON:
        trusted(sys.stdout).write(graph_json(graph))
    elif arguments.format == MERMAID:
        sys.stdout.write(graph_mermaid(graph))
    else:
        write_table(link_rows(graph), COLUMNS, sys.stdout)
    if not arguments.quiet:
        more = f", and {graph.not_shown:,} more" if graph.not_shown else ""
        found = f"{count_text(len(graph.topics), 'topic')} with keys, {count_text(len(graph.links), 'link')}{more}"
        print_line(f"{found} ({time.monotonic() - started:.1f} s)")
    return ExitCode.OK


def main(argv: Sequence[str] | None = None) -> int:
    """Run `commitlake lineage`."""
    return run_job(build_parser(), job, join_times(sys.argv[1:] if argv is None else argv, "--from", "--to"))
