"""Answers a question about a key, id or offset with a story, from the tables of a lake, without Spark or a JVM.

A story may be limited to the steps near the records that the question names. Texts and outcomes are computed from the
whole story first, so they do not depend on how much of it is shown.
"""

from __future__ import annotations

import datetime
import pickle
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice

from commitlake.connectors.lake.archive_commits import ArchiveCommit, newest_commit
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.lost_ranges import LostRange, describe_lost_ranges, lost_ranges
from commitlake.connectors.runtime.runner import Runner, divide_tasks, results_in_order
from commitlake.pipelines.edges.lake_spans import LinkedExtents
from commitlake.pipelines.edges.progress import APPLICATION_ID
from commitlake.pipelines.lineage.graph_building import build_graph, order_graph, step_id, to_story_record
from commitlake.pipelines.lineage.group_offsets import GroupOffsetsByTopic, read_offsets
from commitlake.pipelines.lineage.group_outcomes import Outcomes
from commitlake.pipelines.lineage.message_history import Edge, Outcome, Question, Record, Step, Story
from commitlake.pipelines.lineage.prefetched_tables import PrefetchedTables
from commitlake.pipelines.lineage.row_gathering import GatheredRows, gather_rows
from commitlake.pipelines.lineage.table_lookups import LineageTables, Row
from commitlake.pipelines.lineage.value_texts import relative_time_text
from commitlake.pipelines.maintenance.expiry import read_expiries
from commitlake.pipelines.masking.archive_masks import masks_change_bodies
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.rocketmq.message_id import parse_id_offset
from commitlake.schemas.layouts.rocketmq.topics import Kind
from commitlake.schemas.times import EPOCH

_CONSUMED_KINDS = (Kind.NORMAL, Kind.RETRY)
"""Kinds of records that groups consume."""
_LATE_EDGES = (
    "the table edges does not have the newest archive runs yet, so steps of the newest records may be missing; the "
    "next 'commitlake archive' adds them"
)
_MASKED_TRACES = "the masks of this lake leave out the bodies of traces"
STORY_TABLES = ("messages", "message_keys", "edges", "consumer_offsets", "subscriptions", "gaps", "topic_minutes")
"""Tables from which stories are read."""
KEYS_AT_ONCE = 5_000
"""Number of keys whose messages are looked up together."""
_MAX_GATHERED = 20_000
"""Number of rows of stories from which they are completed, before more are gathered."""
_PACKED_STORIES = 200
"""Number of stories that a task returns as one value."""
_TASKS_PER_CORE = 4
"""Number of tasks for each core of a runner whose results may wait for the driver."""
_OLD_SNAPSHOT = datetime.timedelta(minutes=10)


def read_story(lake: Lake, question: Question) -> Story:
    """Return the history of the messages with the requested key, id or offset; without steps if there are none.

    Raises:
        LogDamagedError: The log of `messages` is damaged.
    """
    story, _ = read_story_and_rows(lake, question)
    return story


def read_matching_rows(lake: Lake, question: Question) -> Sequence[Row]:
    """Return only the rows of `messages` with the requested key, id or offset."""
    return LineageTables(lake).find_matches(question).rows


def read_matching_records(lake: Lake, question: Question) -> list[Record]:
    """Return the records with the requested key, id or offset, in time order."""
    found = GatheredRows()
    rows = {(row["broker"], row["physical_offset"]): row for row in read_matching_rows(lake, question)}
    found.matched = set(rows)
    ordered_rows = sorted(rows.values(), key=lambda row: (row["store_timestamp"] or EPOCH, row["physical_offset"]))
    return [to_story_record(row, found) for row in ordered_rows]


def read_story_and_rows(lake: Lake, question: Question) -> tuple[Story, Sequence[Row]]:
    """Return the history of the messages with the requested key, id or offset, and their rows of `messages`."""
    lake = lake.pin_versions()  # all of a story is of one version of each table
    tables = LineageTables(lake)
    found = gather_rows(tables, question)
    (offsets,) = read_offsets(lake, [_consumable_records(found)])
    return _make_story_of_match(tables, question, found, offsets, _StoryContext(lake, tables))


def read_stories(
    lake: Lake, keys: Sequence[str], question: Question, runner: Runner | None = None
) -> Iterator[tuple[Story, Sequence[Row]]]:
    """Yield, for each key, the history of its messages and their rows of `messages`, which locate the bodies.

    The tables are read for thousands of keys together. Of these, only the places of their messages are in memory, and
    the rows for as many stories as have a limited number of rows. Of a runner's tasks, this process has the results of
    a few for each core, compressed. All stories are of one version of each table.

    Args:
        keys: Business keys.
        question: A question about one of them; its other values hold for all.
        runner: Runs tasks that read the stories of some keys each; None to read them in this thread.
    """
    lake = lake.pin_versions()
    if runner is None:
        for start in range(0, len(keys), KEYS_AT_ONCE):
            yield from _read_stories_of_keys(lake, question, keys[start : start + KEYS_AT_ONCE])
        return
    for table in STORY_TABLES:
        lake.find(table)  # opened, its version is that of all tasks
    tasks = divide_tasks(keys, max(runner.cores, -(-len(keys) // KEYS_AT_ONCE)))
    read = partial(_pack_stories_of_keys, lake, question)
    # A part at a time, because a runner returns results as fast as they are there, and not as they are used.
    for part in divide_tasks(tasks, -(-len(tasks) // (_TASKS_PER_CORE * runner.cores))):
        for packed in results_in_order(runner.run(read, part)):
            for stories in packed:
                yield from pickle.loads(zlib.decompress(stories))  # noqa: S301 (data of our own workers)


def _pack_stories_of_keys(lake: Lake, question: Question, keys: Sequence[str]) -> list[bytes]:
    """Return the stories of keys, pickled and compressed, some hundred at a time."""
    packed, stories = [], _read_stories_of_keys(lake, question, keys)
    while some := list(islice(stories, _PACKED_STORIES)):
        packed.append(zlib.compress(pickle.dumps(some, pickle.HIGHEST_PROTOCOL), level=1))
    return packed


def _read_stories_of_keys(lake: Lake, question: Question, keys: Sequence[str]) -> Iterator[tuple[Story, Sequence[Row]]]:
    tables = PrefetchedTables(lake, keys, question)
    context = _StoryContext(lake, tables)
    for part in tables.prefetch_in_parts():
        yield from _read_prefetched_stories(tables, [replace(question, key=key) for key in part], context)


def _read_prefetched_stories(
    tables: LineageTables, questions: Sequence[Question], context: _StoryContext
) -> Iterator[tuple[Story, Sequence[Row]]]:
    gathered: list[tuple[Question, GatheredRows]] = []
    row_count = 0
    for question in questions:
        found = gather_rows(tables, question)
        gathered.append((question, found))
        row_count += len(found.records) + len(found.edges)
        if row_count >= _MAX_GATHERED:
            yield from _make_stories(tables, gathered, context)
            gathered, row_count = [], 0
    yield from _make_stories(tables, gathered, context)


def _make_stories(
    tables: LineageTables, gathered: Sequence[tuple[Question, GatheredRows]], context: _StoryContext
) -> Iterator[tuple[Story, Sequence[Row]]]:
    """Yield message histories from the rows read for many keys, after reading the group offsets for all of them."""
    offsets = read_offsets(tables.lake, [_consumable_records(found) for _, found in gathered])
    for (question, found), own_offsets in zip(gathered, offsets, strict=True):
        yield _make_story_of_match(tables, question, found, own_offsets, context)


def _consumable_records(gathered: GatheredRows) -> list[Row]:
    return [row for row in gathered.records.values() if row["kind"] in _CONSUMED_KINDS]


class _StoryContext:
    """Values that are the same for the histories of many keys, each read when it is first needed."""

    def __init__(self, lake: Lake, tables: LineageTables) -> None:
        self._lake, self._tables = lake, tables
        self._lost: dict[Question, list[LostRange]] = {}
        self._expiry: dict[Question, list[str]] = {}

    @cached_property
    def newest_run(self) -> tuple[int, ArchiveCommit] | None:
        """The newest archive commit, and the version of `messages` that it created."""
        return newest_commit(self._lake, self._tables.messages)

    def lost_ranges(self, question: Question) -> list[LostRange]:
        """Return the log ranges that the lake has lost and that may have held records of a query."""
        same = _without_key(question)
        if same not in self._lost:
            self._lost[same] = _read_lost_ranges(self._lake, question)
        return self._lost[same]

    def expiry_cautions(self, question: Question) -> list[str]:
        """Return a sentence if records may have been dropped by retention, read only once for many keys."""
        same = _without_key(question)
        if same not in self._expiry:
            self._expiry[same] = expiry_cautions(self._lake, question)
        return self._expiry[same]


def _without_key(question: Question) -> Question:
    """Return the query without its key, so that the queries for all keys share one cached result."""
    return question if question.key is None else replace(question, key="")


def _make_story_of_match(
    tables: LineageTables, question: Question, found: GatheredRows, offsets: GroupOffsetsByTopic, context: _StoryContext
) -> tuple[Story, Sequence[Row]]:
    now = tables.read_newest_store_times({row["broker"] for row in found.records.values()}) if found.records else {}
    as_of = max(now.values(), default=None)
    graph = build_graph(found, as_of)
    consumed = _consumable_records(found)
    outcomes = Outcomes(found, graph, offsets, now).all_outcomes()
    steps, edges = order_graph(graph)
    order = {step.id: number for number, step in enumerate(steps)}
    outcomes.sort(key=lambda outcome: order[outcome.step])
    newest = context.newest_run
    masked = newest is not None and masks_change_bodies(newest[1].masks)
    unknown = _collect_cautions(found, consumed, offsets, as_of, has_masked_bodies=masked)
    cautions = [*found.cautions, *_late_edges_caution(tables, newest), *unknown]
    if not steps:
        cautions += context.expiry_cautions(question)
    shown = NearSteps(steps, edges, outcomes)
    if question.depth is not None:
        named = {step_id(place) for place in {*found.matched, *found.related}}
        shown = select_near_steps(steps, edges, outcomes, named, question.depth)
    cautions += shown.cautions
    missing = describe_lost_ranges(context.lost_ranges(question))
    cautions += missing
    story = Story(
        question.question_text, as_of, shown.steps, shown.edges, shown.outcomes, cautions, found.not_shown, missing
    )
    ids = {step.id for step in shown.steps}
    return story, [row for place, row in found.records.items() if step_id(place) in ids]


def _read_lost_ranges(lake: Lake, question: Question) -> list[LostRange]:
    """Return the log ranges that the lake has lost and that may have held records of a query."""
    broker, offset = question.place or (None, parse_id_offset(question.message_id))
    lost = lost_ranges(lake, [] if broker is None else [broker], question.start, question.end)
    return lost if offset < 0 else [part for part in lost if part.contains_offset(offset)]


def _late_edges_caution(tables: LineageTables, newest_run: tuple[int, ArchiveCommit] | None) -> list[str]:
    """Return a warning, in a list, if `edges` does not include the newest archive run; otherwise an empty list."""
    if tables.edges is None or newest_run is None:
        return []
    followed = tables.edges.transaction_version(APPLICATION_ID)
    if followed is None or followed >= newest_run[0]:
        return []
    return [_LATE_EDGES]


def _collect_cautions(
    gathered: GatheredRows,
    consumable_records: Sequence[Row],
    offsets: GroupOffsetsByTopic,
    as_of: datetime.datetime | None,
    *,
    has_masked_bodies: bool,
) -> list[str]:
    told = []
    brokers = sorted({row["broker"] for row in consumable_records})
    lacking = [broker for broker in brokers if broker not in offsets.taken]
    if lacking:
        told.append(
            f"the lake has no snapshot of the groups' offsets of {', '.join(lacking)}, so it is not known "
            "which groups there are, nor what they have passed"
        )
    for broker in brokers:
        taken = offsets.taken.get(broker)
        if taken is not None and as_of is not None and taken + _OLD_SNAPSHOT < as_of:
            told.append(
                f"the groups' offsets of {broker} are from {relative_time_text(taken, as_of)}; the lake has no newer "
                "ones"
            )
    if (
        consumable_records
        and gathered.has_edges
        and not any(edge["evidence_broker"] is not None for edge in gathered.edges)
    ):
        reason = _MASKED_TRACES if has_masked_bodies else "no client has traced these messages"
        told.append(
            f"{reason}, so their consumption is only known from offsets of groups, which do "
            "not show whether a message was consumed, by whom, or when exactly"
        )
    return told


def expiry_cautions(lake: Lake, question: Question) -> list[str]:
    """Return a sentence if records that a query asks for may have been dropped by retention; else an empty list.

    Args:
        question: a question without matching records.
    """
    messages = lake.table("messages")
    before = read_expiries(messages).get("messages")
    if before is None:
        return []
    dropped = f"the lake has dropped messages from before {before.isoformat()}"
    broker, offset = question.place or (None, parse_id_offset(question.message_id))
    if offset < 0:
        return [f"{dropped}, and an older one would not be found"]
    spans = LinkedExtents(lake, messages, ()).spans_after(()).brokers
    firsts = [span.first_offset for name, span in spans.items() if broker in {None, name}]
    if not firsts or offset < min(firsts):
        return [f"it has expired: {dropped}"]
    return []


@dataclass(frozen=True)
class NearSteps:
    """Steps of a message history that are shown, with the edges between them and their outcomes.

    Attributes:
        steps: The steps, in the story's order.
        edges: The edges between them.
        outcomes: The outcomes at these steps.
        cautions: A sentence on the steps that are left out, if there are any.
    """

    steps: Sequence[Step]
    edges: Sequence[Edge]
    outcomes: Sequence[Outcome]
    cautions: Sequence[str] = ()


def select_near_steps(
    steps: Sequence[Step],
    edges: Sequence[Edge],
    outcomes: Sequence[Outcome],
    start_step_ids: Collection[str],
    depth: int,
) -> NearSteps:
    """Return the part of a message history that is at most `depth` edges away from the given steps.

    Args:
        steps: All steps.
        edges: All edges.
        outcomes: All outcomes.
        start_step_ids: Ids of the steps from which edges are counted.
        depth: Largest number of edges.
    """
    neighbours: dict[str, set[str]] = defaultdict(set)
    for edge in edges:
        neighbours[edge.source].add(edge.target)
        neighbours[edge.target].add(edge.source)
    near = set(start_step_ids)
    border = near
    for _ in range(depth):
        border = {other for one in border for other in neighbours[one]} - near
        if not border:
            break
        near |= border
    kept = [step for step in steps if step.id in near]
    left_out = len(steps) - len(kept)
    if not left_out:
        return NearSteps(steps, edges, outcomes)
    caution = (
        f"{format_count(left_out, 'step')} more than {format_count(depth, 'edge')} away "
        f"{'is' if left_out == 1 else 'are'} left out"
    )
    return NearSteps(
        kept,
        [edge for edge in edges if edge.source in near and edge.target in near],
        [outcome for outcome in outcomes if outcome.step in near],
        [caution],
    )
