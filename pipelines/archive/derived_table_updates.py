"""Updates the tables that follow others: `message_keys` and `consumptions`, then `edges`.

`edges` finds earlier messages through `message_keys`, deliveries in `consumptions`, and pending redeliveries in the
stores' retry stores. A lake created by an earlier version has no table `edges`. Building it takes time proportional to
the size of the lake, so a run builds it only for a small lake.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa

from commitlake.connectors.lake.backoff import TableUpdate
from commitlake.connectors.lake.delta_log.versions import files_of_table
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.log_format.recorded_deliveries import RETRY_ROWS
from commitlake.connectors.reading.stores import Store
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.consumptions.table_update import follow_consume_logs
from commitlake.pipelines.edges.progress import followed_messages_version
from commitlake.pipelines.edges.retry_states import RetryEntries
from commitlake.pipelines.edges.table_update import EdgesUpdate, catch_up_edges
from commitlake.pipelines.message_keys.key_files import PreparedKeys
from commitlake.pipelines.message_keys.table_update import catch_up_keys
from commitlake.schemas.formatted_counts import format_count

MAX_FIRST_ROWS = 20_000_000
"""Largest number of messages of a lake for which a run builds the table `edges`."""
_LACKS_EDGES = "the lake has no table edges yet: 'archive --backfill edges' builds it"


@dataclass(frozen=True)
class FollowedTables:
    """Results of updating the tables that are derived from `messages` and consume logs.

    Attributes:
        updates: a result for each table that was updated.
        problems: sentences on files of the stores that could not be read, for the run's summary and verdict.
        notes: other sentences for the summary.
    """

    updates: Sequence[TableUpdate] = ()
    problems: Sequence[str] = ()
    notes: Sequence[str] = ()


NOTHING_FOLLOWED = FollowedTables()


def follow_tables(
    lake: Lake,
    stores: Sequence[Store],
    runner: Runner,
    *,
    updates_edges: bool,
    prepared_keys: PreparedKeys | None = None,
    files_without_roles: Collection[str] = (),
) -> FollowedTables:
    """Update the tables derived from `messages` to its newest version, and from consume logs to their ends.

    Args:
        stores: stores whose consume logs and retry stores are read.
        runner: runs the tasks if there is much to do.
        updates_edges: True to update `edges` and `consumptions`, too.
        prepared_keys: keys that the run's tasks have written.
        files_without_roles: names of data files of `messages` that, as the tasks know, have no row with a role.

    Raises:
        VersionsError: if rows of `messages` were changed.
        UnsafeFileError: if a file of a consume log or a retry store is a link or not regular.
    """
    keys = catch_up_keys(lake, runner, prepared_keys=prepared_keys)
    if not updates_edges:
        return FollowedTables([keys])
    consumed = follow_consume_logs(lake, stores)
    # Pinned after the two updates above, which `edges` reads, and before anything is read for it.
    reading = lake.pin_versions()
    if followed_messages_version(reading) < 0 and _count_messages(reading) > MAX_FIRST_ROWS:
        return FollowedTables([keys, consumed], consumed.problems, [_LACKS_EDGES])
    states, problems = read_retry_states(stores)
    edges = catch_up_edges(lake, runner, states=states, files_without_roles=files_without_roles, lake_view=reading)
    return FollowedTables([keys, consumed, edges], [*consumed.problems, *problems], unreadable_trace_notes(edges))


def read_retry_states(stores: Sequence[Store]) -> tuple[RetryEntries, list[str]]:
    """Return the messages in the stores' retry stores, and a sentence on each that cannot be read.

    Retry stores that cannot be read are left out.

    Raises:
        UnsafeFileError: if a file of a retry store is a link or not regular.
    """
    found = {
        store.broker: read_retry_store(store.folder, store.broker)
        for store in stores
        if (read_retry_store := store.format.read_retry_store) is not None
    }
    problems = [problem for one in found.values() for problem in one.problems]
    read = {broker: one.rows for broker, one in found.items() if one.is_read}
    rows = pa.concat_tables([RETRY_ROWS.empty_table(), *read.values()])
    return RetryEntries(frozenset(read), rows), problems


def unreadable_trace_notes(edges: EdgesUpdate) -> list[str]:
    """Return sentences on trace messages and op records that could not be read or parsed for `edges`."""
    notes = []
    if edges.unread:
        notes.append(f"edges: the bodies of {edges.unread:,} trace messages and op records could not be read")
    if edges.passed_over:
        notes.append(
            f"edges: {format_count(edges.passed_over, 'record of traces is', 'records of traces are')} not in "
            "RocketMQ's format: left out"
        )
    return notes


def _count_messages(lake: Lake) -> int:
    files = files_of_table(lake.uri("messages"), lake.table_at("messages")).files
    return sum(file.rows or 0 for file in files)
