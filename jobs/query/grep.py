"""`query --grep`: search the bodies of messages, and report how much was read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.sql import Engine
from commitlake.jobs.arguments.lake_location import check_packs_location
from commitlake.jobs.arguments.sizes import size_text
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.query.arguments import QueryOptions
from commitlake.jobs.report.rows_output import rows_of_batches, write_rows
from commitlake.pipelines.query.engines import TableQuery
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count

if TYPE_CHECKING:
    from commitlake.connectors.lake.packs.location import PackLocation
    from commitlake.connectors.runtime.runner import Runner
    from commitlake.pipelines.grep.planning import SearchPlan
    from commitlake.pipelines.grep.search import SearchProgress


def run_grep(query: QueryOptions, table_query: TableQuery, lake: Lake, table: DeltaTable) -> ExitCode:
    """Search the bodies of the selected messages, print those that match, and report how much was read.

    Args:
        table_query: selection of the messages; its conditions are in the SQL of the deltalake package, for any engine.

    Returns:
        `DAMAGE` if some of the bodies could not be read.

    Raises:
        UsageError: for an invalid expression.
        QueryError: if the engine cannot understand or answer the conditions.
        PackStoreError: if the place of the packs cannot be read.
    """
    from commitlake.jobs.cli.progress import runner_progress
    from commitlake.pipelines.grep.pattern import parse_pattern
    from commitlake.pipelines.grep.planning import plan_search
    from commitlake.pipelines.grep.search import MATCH_COLUMNS, SearchParameters, SearchProgress, run_search
    from commitlake.pipelines.maintenance.expiry import read_expiries

    assert query.grep is not None
    started = time.monotonic()
    pattern = parse_pattern(query.grep)
    conditions = table_query.where_conditions(Engine.DELTALAKE)
    columns = ["physical_offset"] if query.count else list(table_query.columns)
    limit = 0 if query.count else query.limit
    location = _pack_location(query, lake)
    plan = plan_search(table, conditions)
    most = limit + 1 if limit else 0  # one more row shows whether there are more
    search = SearchParameters(
        lake, table.version(), location, pattern, conditions, columns, most, with_excerpts=not query.count
    )
    read = SearchProgress()
    runner = _make_search_runner(query)
    with runner_progress(runner, "Bodies searched", plan.body_bytes, quiet=query.quiet) as advance:
        batches = run_search(
            search, plan, runner, read, limit=limit, expired_before=read_expiries(table).get("bodies"), advance=advance
        )
        if query.count:
            count = sum(batch.num_rows for batch in batches)
            print(count)
        else:
            count = write_rows(query.output, rows_of_batches(batches, 0), [*columns, *MATCH_COLUMNS])
    if not query.quiet or read.unreadable:
        for line in _summary_lines(count, read, plan, query, time.monotonic() - started):
            print_line(line)
    return ExitCode.DAMAGE if read.unreadable else ExitCode.OK


def _pack_location(query: QueryOptions, lake: Lake) -> PackLocation:
    """Return the location of the packs (files of bodies): from the option, or else from the last archive run."""
    from commitlake.connectors.lake.archive_commits import read_last_commit
    from commitlake.connectors.lake.packs.location import pack_location
    from commitlake.pipelines.archive.body_location import IN_LAKE

    if query.bodies is None:
        last = read_last_commit(lake)
        if last is not None and last.bodies not in (None, IN_LAKE):
            return pack_location(str(last.bodies), lake.s3)
    check_packs_location(lake)
    return lake.packs


def _make_search_runner(query: QueryOptions) -> Runner:
    if query.is_on_spark:
        from commitlake.connectors.spark.runner import SparkRunner
        from commitlake.jobs.arguments.runner import get_spark_session

        return SparkRunner(get_spark_session("query"))
    from commitlake.connectors.runtime.local_runner import ThreadRunner

    return ThreadRunner()


def _summary_lines(
    match_count: int, progress: SearchProgress, search_plan: SearchPlan, query: QueryOptions, seconds: float
) -> Iterator[str]:
    rate = f"{progress.bytes / max(seconds, 1e-9) / 1e9:.2f} GB/s"
    yield (
        f"{format_count(match_count, 'message matches', 'messages match')}; read "
        f"{format_count(progress.messages, 'body', 'bodies')} "
        f"({size_text(progress.bytes)}) in {format_count(progress.packs, 'pack')} ({seconds:.1f} s, {rate})"
    )
    if progress.is_cut:
        yield (
            f"--limit {query.limit} cut the result: {progress.messages:,} of "
            f"{format_count(search_plan.message_count, 'body', 'bodies')} were read; --limit 0 gives all"
        )
    if search_plan.without_body:
        without_body = format_count(search_plan.without_body, "message has", "messages have")
        yield f"{without_body} no body in the lake: not searched"
    if progress.expired:
        yield f"{format_count(progress.expired, 'body has', 'bodies have')} expired: not searched"
    if progress.unreadable:
        yield f"{format_count(progress.unreadable, 'body is', 'bodies are')} unreadable, not searched:"
        yield from (f"  {reason}" for reason in progress.reasons)
