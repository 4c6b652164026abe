"""The table `replay_rows`: all messages of a replay that changes or copies them, written before any is sent.

A replay reads them when it sends, when it resumes after a crash, and when it is verified. After that they are not
needed, and they contain bodies, which a lake often keeps for a shorter time than a replay's record. So they are dropped
after a time.
"""

from __future__ import annotations

import datetime
import re
import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.lake.committer import commit_with_transaction
from commitlake.connectors.lake.delta_log.file_actions import TableFile, read_table_files
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.connectors.lake.sql import text_literal
from commitlake.pipelines.maintenance.compaction import rewrite_file
from commitlake.pipelines.maintenance.file_replacement import replace_table_files
from commitlake.pipelines.replay.errors import OtherProcessError, ReplayError
from commitlake.pipelines.replay.ledger import (
    TRY_AGAIN,
    Ledger,
    ReplayState,
    add_replay_event,
    busy_error,
    check_is_not_running,
    iterate_commit_attempts,
    read_replay_states,
)
from commitlake.pipelines.replay.message_changes import MessageChanges, decode_messages, mask_and_encode_messages
from commitlake.pipelines.replay.planned_messages import SCHEMA, PlannedMessages
from commitlake.schemas.tables.replays import ENDED, IDENTITY, TRANSFORMED, ReplayEvent
from commitlake.schemas.times import from_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_TRANSFORMED = pa.schema([SCHEMA.field(name) for name in TRANSFORMED.names])
DEFAULT_KEEP = datetime.timedelta(days=30)
"""Default time for which the copies of a replay are kept after its end."""
_ID_TIME = re.compile(r"([0-9]{8}-[0-9]{6})-[0-9a-f]{6}")


def write_changed_rows(
    lake: Lake, messages: PlannedMessages, changes: MessageChanges, spark: SparkSession | None = None
) -> None:
    """Apply changes to the messages of a plan, and write the changed messages to `replay_rows`.

    Args:
        messages: messages of a plan on the table `messages`.
        changes: changes to make.
        spark: session that runs the function, if there is one.

    Raises:
        ReplayError: if the result of the function cannot be sent.
    """
    replay_id = messages.plan.replay_id
    if changes.transform is None:
        _commit_files(lake, replay_id, "masked", _write_decoded_files(lake, messages, changes))
        return
    if spark is None:
        raise ValueError("a transform function over a DataFrame needs a Spark session, found none")
    from commitlake.pipelines.replay.spark_transform import transformed_rows  # noqa: PLC0415 (loads Spark)

    _commit_files(lake, replay_id, "originals", _write_decoded_files(lake, messages, None))
    try:
        rows = transformed_rows(spark, lake, replay_id, changes.transform)
        _commit_files(lake, replay_id, "transformed", _write_transformed_files(lake, replay_id, rows, changes))
        _check_identity_unchanged(lake, replay_id)
    except BaseException:
        # Also after Ctrl-C. If the process is killed, rows remain that no plan names, and `maintain` drops them.
        _delete_rows(lake, f"replay_id = {text_literal(replay_id)}")
        raise
    # Only after the check, which compares with the originals.
    _delete_rows(lake, f"replay_id = {text_literal(replay_id)} AND NOT is_changed")


def write_copied_rows(lake: Lake, messages: PlannedMessages, number: int = 1) -> None:
    """Copy the messages of a plan to `replay_rows`, so that they can be sent when their source no longer exists.

    Nothing is written if copies of a replay with the same id were written before: `read_copies_number` returns the
    number that was given then.

    Args:
        messages: messages of a plan on a table that was copied from a lake, from a log or from topics.
        number: number, at least 1, by which a later run recognizes the messages.
    """
    _commit_files(lake, messages.plan.replay_id, "copied", _write_copied_files(lake, messages), number)


def read_copies_number(lake: Lake, replay_id: str) -> int | None:
    """Return the number that identifies which messages were copied for a replay; None if none were."""
    table = lake.find("replay_rows")
    return None if table is None else table.transaction_version(_application_id(replay_id, "copied"))


def _commit_files(lake: Lake, replay_id: str, stage: str, files: Iterable[DataFile], number: int = 1) -> None:
    """Add data files to `replay_rows` once for each replay and stage; do nothing if another process has added them.

    Raises:
        ReplayError: if other processes commit first for a long time.
    """
    written = list(files)
    application = _application_id(replay_id, stage)
    for _ in iterate_commit_attempts():
        # Only the first commit of this stage: None is the number before it.
        if commit_with_transaction(lake, "replay_rows", written, application, (None, number)):
            return
        if lake.table("replay_rows").transaction_version(application) is not None:
            return
    raise busy_error("replay_rows", TRY_AGAIN)


def _application_id(replay_id: str, stage: str) -> str:
    return f"commitlake.replay_rows/{replay_id}/{stage}"


def _delete_rows(lake: Lake, condition: str) -> None:
    lake.table("replay_rows").delete(condition)
    lake.seal_log("replay_rows")


def _write_copied_files(lake: Lake, messages: PlannedMessages) -> Iterator[DataFile]:
    for rows in messages.read_parts():
        stored = messages.read_bodies_of_rows(rows)
        others = [name for name in rows.column_names if name != "body"]
        errors = [stored.errors.get(row) for row in range(rows.num_rows)]
        copied = rows.select(others).append_column("body", stored.values)
        yield _write_file(lake, messages.plan.replay_id, copied, errors, is_changed=True)


def _write_decoded_files(lake: Lake, messages: PlannedMessages, changes: MessageChanges | None) -> Iterator[DataFile]:
    """Write messages as users' functions and masks see them, masked unless `changes` is None.

    Those whose body cannot be read are final, and have the error.
    """
    replay_id = messages.plan.replay_id
    for stored in messages.read_parts():
        rows, errors = decode_messages(stored, messages.read_bodies_of_rows(stored))
        failed = pa.array([error is not None for error in errors], pa.bool_())
        if pc.any(failed).as_py():
            texts = [error for error in errors if error is not None]
            yield _write_file(lake, replay_id, rows.filter(failed), texts, is_changed=True)
        rows = rows.filter(pc.invert(failed))
        done, why = (rows, [None] * rows.num_rows) if changes is None else mask_and_encode_messages(rows, changes)
        yield _write_file(lake, replay_id, done, why, is_changed=changes is not None)


def _write_file(
    lake: Lake, replay_id: str, rows: pa.Table, errors: Sequence[str | None], *, is_changed: bool
) -> DataFile:
    columns = {name: rows.column(name) for name in _TRANSFORMED.names} | {
        "replay_id": pa.repeat(replay_id, rows.num_rows),
        "is_changed": pa.repeat(is_changed, rows.num_rows),
        "error": pa.array(errors, pa.string()),
    }
    table = pa.table({name: columns[name] for name in SCHEMA.names}).cast(SCHEMA)
    name = f"part-{secrets.token_hex(16)}.zstd.parquet"
    return write_plain_file(table, lake, "replay_rows", name)


def _write_transformed_files(
    lake: Lake, replay_id: str, rows: Iterable[pa.RecordBatch], changes: MessageChanges
) -> Iterator[DataFile]:
    for batch in rows:
        done, why = mask_and_encode_messages(pa.Table.from_batches([batch]).cast(_TRANSFORMED), changes)
        yield _write_file(lake, replay_id, done, why, is_changed=True)


def _check_identity_unchanged(lake: Lake, replay_id: str) -> None:
    """Raise an error if the user's function has changed the columns that identify messages, or duplicated messages."""
    # Without sys_flag, whose codec bits depend on the new body.
    known = ", ".join(name for name in IDENTITY if name != "sys_flag")
    rows = f"SELECT {known} FROM t WHERE replay_id = {text_literal(replay_id)} AND"
    # Rows that are not exactly among the originals.
    made = f"{rows} is_changed AND error IS NULL EXCEPT {rows} NOT is_changed"
    twice = f"{rows} is_changed GROUP BY {known} HAVING count(*) > 1"
    table = lake.table("replay_rows")
    wrong = [row for sql in (made, twice) for row in rows_to_dicts(run_sql(table, "t", f"{sql} LIMIT 1").read_all())]
    if wrong:
        raise ReplayError(
            f"--transform: the function duplicated the message of broker {wrong[0]['broker']} at physical offset "
            f"{wrong[0]['physical_offset']}, or changed one of its columns {', '.join(IDENTITY)}, which identify a "
            "message"
        )


@dataclass(frozen=True, slots=True)
class OldCopies:
    """Rows of `replay_rows` that are no longer needed, by replay, and replays whose old rows are kept.

    Attributes:
        replays: whose rows are dropped, sorted.
        files: the data files that have such rows, each with the number of them.
        resumable: replays whose copies are just as old, but are kept because the replays can be resumed.
        unknown: ids whose rows in the ledger cannot be read, and an empty one for rows without an id; their copies are
            kept.
    """

    replays: tuple[str, ...] = ()
    files: tuple[tuple[TableFile, int], ...] = ()
    resumable: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def row_count(self) -> int:
        """Number of rows to be dropped."""
        return sum(rows for _, rows in self.files)

    @property
    def size_bytes(self) -> int:
        """Size in bytes of the rows to be dropped, estimated for data files that also have other rows."""
        return sum(file.size * rows // max(1, file.rows or rows) for file, rows in self.files)


def find_old_copies(
    lake: Lake,
    now: datetime.datetime,
    retention: datetime.timedelta,
    min_unplanned_age: datetime.timedelta,
    *,
    drops_resumable: bool,
) -> OldCopies:
    """Return the rows of `replay_rows` that may be dropped because no replay needs them any more.

    Args:
        now: the moment from which ages count.
        retention: how long the copies of a replay are kept after its newest event.
        min_unplanned_age: age from which copies are dropped if their replay was killed before its plan was recorded.
        drops_resumable: whether to include those of a replay that has stopped or failed, and could be resumed. Those of
            a replay that a process may be sending are always kept.

    Raises:
        LakeError: if a table is damaged.
    """
    table = lake.find("replay_rows")
    if table is None:
        return OldCopies()
    files = [(file, _count_rows_by_replay(lake, file)) for file in read_table_files(table)]
    unreadable: set[str] = set()
    states = read_replay_states(lake, on_error=lambda replay_id, _: unreadable.add(replay_id))
    old: set[str] = set()
    resumable: set[str] = set()
    unknown: set[str] = set()
    for replay_id in {name for _, counts in files for name in counts}:
        state = states.get(replay_id)
        if replay_id in unreadable or not replay_id:
            unknown.add(replay_id)
        elif state is None:  # killed before its plan was recorded, or still copying
            # An id that a caller has chosen has no time.
            begun_at = _time_in_replay_id(replay_id) or _last_added_at(replay_id, files)
            if begun_at < now - min_unplanned_age:
                old.add(replay_id)
        elif state.copies_dropped_at is not None:
            old.add(replay_id)
        elif state.last_at < now - retention:
            if state.event in ENDED or (drops_resumable and _is_abandoned(lake, state, now - retention)):
                old.add(replay_id)
            else:
                resumable.add(replay_id)
    hits = tuple((file, rows) for file, counts in files if (rows := sum(counts[name] for name in old)))
    return OldCopies(tuple(sorted(old)), hits, tuple(sorted(resumable)), tuple(sorted(unknown)))


def drop_copies(lake: Lake, old_copies: OldCopies) -> None:
    """Drop old rows of `replay_rows` in one commit, after recording this for each replay.

    Args:
        old_copies: what `find_old_copies` has found.

    Raises:
        ConcurrentMaintenanceError: if another process has replaced files of the table meanwhile.
    """
    if not old_copies.files:
        return
    states = read_replay_states(lake, on_error=lambda *_: None)
    for replay_id in old_copies.replays:
        state = states.get(replay_id)
        if state is not None and state.copies_dropped_at is None:
            # Before the copies are dropped: after a crash in between, the replay cannot be resumed with half of them,
            # and the next run drops the rest.
            add_replay_event(lake, replay_id, ReplayEvent.COPIES_DROPPED)
    left_out = partial(_drop_rows_of, frozenset(old_copies.replays))
    added = [
        # Files with rows of other replays, or of an unknown number, are written again without these.
        rewrite_file(lake, "replay_rows", file, left_out)
        for file, rows in old_copies.files
        if file.rows is None or rows < file.rows
    ]
    replace_table_files(
        lake,
        "replay_rows",
        [file for file, _ in old_copies.files],
        [file for file in added if file.rows],
        changes_data=True,
        note={"action": "drop copies", "replays": list(old_copies.replays)},
    )


def _is_abandoned(lake: Lake, state: ReplayState, cutoff: datetime.datetime) -> bool:
    """Return whether no process is sending a replay, and none has recorded an outcome since `cutoff`."""
    last_written = Ledger(lake, state.plan.replay_id).last_outcome_time()
    if last_written is not None and last_written >= cutoff:
        return False
    with suppress(OtherProcessError):
        check_is_not_running(lake, state)
        return True
    return False


def _time_in_replay_id(replay_id: str) -> datetime.datetime | None:
    """Return when a replay was planned, as its id says; None for an id that does not begin with a time."""
    match = _ID_TIME.fullmatch(replay_id)
    with suppress(ValueError):
        if match is not None:
            return datetime.datetime.strptime(match[1], "%Y%m%d-%H%M%S").replace(tzinfo=datetime.UTC)
    return None


def _last_added_at(replay_id: str, files: Iterable[tuple[TableFile, Counter[str]]]) -> datetime.datetime:
    """Return when the newest data file with rows of a replay was added to the table."""
    return from_ms(max(file.modified_ms for file, counts in files if replay_id in counts))


def _count_rows_by_replay(lake: Lake, file: TableFile) -> Counter[str]:
    """Count the rows of each replay in a data file."""
    counts: Counter[str] = Counter()
    with pq.ParquetFile(lake.open_folder("replay_rows").open_input_file(file.path)) as opened:
        for batch in opened.iter_batches(columns=["replay_id"]):
            for row in pc.value_counts(batch.column(0)).to_pylist():
                counts[row["values"] or ""] += row["counts"]
    return counts


def _drop_rows_of(replay_ids: Collection[str], batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield rows without those of the given replays."""
    names = pa.array(sorted(replay_ids), pa.string())
    for batch in batches:
        kept = batch.filter(pc.invert(pc.is_in(batch.column("replay_id").cast(pa.string()), value_set=names)))
        if kept.num_rows:
            yield kept
