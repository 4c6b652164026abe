"""Updates `message_keys` to the newest version of `messages`: adds the keys of new rows in one commit.

An archive run's tasks write the keys of their rows. If these are all rows that the table lacks, the files are added as
they are; otherwise, as after a run that was killed, the new rows are read again.

The commit records the version it has reached as an application transaction (Delta's `txn` action). If a run is killed,
the next one continues from there; of two concurrent runs, only one commits. If files that were not read yet have been
vacuumed, the table is rebuilt from the current `messages`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import pyarrow.parquet as pq

from commitlake.connectors.lake.added_files import AddedFiles, group_files, readable_added_files
from commitlake.connectors.lake.backoff import TableUpdate, update_until_version
from commitlake.connectors.lake.committer import commit_with_transaction
from commitlake.connectors.lake.delta_log.versions import AddedFile
from commitlake.connectors.lake.erasures import APPLICATION_ID as ERASURE
from commitlake.connectors.lake.erasures import ErasedMessages, read_erased_messages
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.manifest import ManifestRow
from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.connectors.lake.rows.table_rows import convert_data_file_errors
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.message_keys.key_files import COLUMNS, MAX_ROWS, REPEATING, PreparedKeys, write_keys
from commitlake.pipelines.message_keys.progress import APPLICATION_ID, followed_erasure, followed_version

_TABLE = "message_keys"
_DRIVER_ROWS = 1 << 17  # fewer rows are read in this process, before others would have started


@dataclass(frozen=True)
class _KeysFilesWriter:
    """Writes the keys of new rows part by part, each to a file, without the keys of erased messages."""

    lake: Lake
    run_id: str
    erased: ErasedMessages

    def write_keys_of_part(self, part: tuple[int, Sequence[AddedFile]]) -> ManifestRow | None:
        """Write the keys of one part (number and data files) to a file; return None if there are no keys."""
        number, read = part
        files = self.lake.open_folder("messages")
        tables = []
        for added in read:
            with (
                convert_data_file_errors(self.lake.uri("messages"), added.name),
                files.open_input_file(added.name) as file,
            ):
                tables.append(
                    pq.read_table(file, columns=COLUMNS, read_dictionary=REPEATING, page_checksum_verification=True)
                )
        name = f"part-{number:05d}-{self.run_id}-{secrets.token_hex(4)}.zstd.parquet"
        file = write_keys(tables, self.erased, self.lake, name)
        return None if file is None else ManifestRow.from_data_file(file, _TABLE)


def catch_up_keys(
    lake: Lake,
    runner: Runner = HERE,
    wait: Callable[[float], object] = time.sleep,
    prepared_keys: PreparedKeys | None = None,
) -> TableUpdate:
    """Add to `message_keys` the keys of all messages; retry if other runs commit first.

    Args:
        runner: runs the tasks if there is much to do; otherwise this thread does it.
        wait: waits for a number of seconds.
        prepared_keys: keys that the tasks of a run have written.

    Raises:
        VersionsError: if rows of `messages` were changed.
    """
    started = time.monotonic()
    reading = lake.pin_versions()
    wanted = reading.table("messages").version()
    if (version := followed_version(reading)) >= wanted:
        return TableUpdate(_TABLE, version, 0, time.monotonic() - started)
    views = chain([reading], repeat(None))  # what other runs have committed is read before each further attempt
    tries = list(update_until_version(wanted, lambda: follow_keys(lake, runner, prepared_keys, next(views)), wait))
    version, rows = tries[-1].version, sum(one.rows for one in tries)
    return TableUpdate(_TABLE, version, rows, time.monotonic() - started, is_unfinished=version < wanted)


def follow_keys(
    lake: Lake, runner: Runner = HERE, prepared_keys: PreparedKeys | None = None, lake_to_read: Lake | None = None
) -> TableUpdate:
    """Add to `message_keys` the keys of new messages, or rebuild it if the changes cannot be read any more.

    Args:
        runner: runs the tasks if there is much to do; otherwise this thread does it.
        prepared_keys: keys that the tasks of a run have written; used if the run's rows are all that the table lacks.
        lake_to_read: view of the lake to update from; by default its newest versions.

    Raises:
        VersionsError: if rows of `messages` were changed.
    """
    started = time.monotonic()
    lake_to_read = lake_to_read or lake.pin_versions()
    progress, done = followed_version(lake_to_read), followed_erasure(lake_to_read)
    erased = read_erased_messages(lake_to_read)
    new = readable_added_files(lake_to_read, progress)
    version = new.version
    if prepared_keys is not None and _has_all_keys(prepared_keys, new, erased):
        written = prepared_keys.files
    else:
        written = _write_keys_of_files(lake, new.files, erased, runner)
    if version > progress or new.from_scratch:
        step = (None if progress < 0 else progress, version)
        # An erasure that reaches this table meanwhile must not miss rows that are added here.
        after = erased.number if new.from_scratch or progress < 0 else done
        erasure = {ERASURE: (done, after)}
        # Files that are not committed stay unused; the next vacuum deletes them.
        if not commit_with_transaction(
            lake,
            _TABLE,
            written,
            APPLICATION_ID,
            step,
            replaces_all_files=new.from_scratch,
            other_transactions=erasure,
        ):
            return TableUpdate(_TABLE, followed_version(lake), 0, time.monotonic() - started)
    return TableUpdate(_TABLE, version, sum(file.rows for file in written), time.monotonic() - started)


def _has_all_keys(prepared_keys: PreparedKeys, new_files: AddedFiles, erased: ErasedMessages) -> bool:
    """Return whether the prepared files have the keys of exactly the new messages, and no erasure came in between."""
    # If another run has added files, too, the keys of these must be read, and then all new files are.
    is_whole = not new_files.from_scratch and {file.name for file in new_files.files} == prepared_keys.messages
    return is_whole and prepared_keys.erasure == erased.number


def _write_keys_of_files(
    lake: Lake, files: Sequence[AddedFile], erased: ErasedMessages, runner: Runner
) -> list[DataFile]:
    """Read data files of `messages`, and write their keys."""
    if sum(file.rows or _DRIVER_ROWS for file in files) <= _DRIVER_ROWS:
        runner = HERE
    rows = sum(MAX_ROWS if file.rows is None else file.rows for file in files)
    max_rows = min(MAX_ROWS, max(_DRIVER_ROWS, -(-rows // runner.cores)))  # smaller parts, so that all cores have work
    parts = enumerate(group_files(files, max_rows, default_rows_per_file=MAX_ROWS))
    largest_first = sorted(parts, key=_count_part_rows, reverse=True)  # so that all cores have work until the end
    chunks = _KeysFilesWriter(lake, secrets.token_hex(8), erased)
    return [row.data_file for _, row in runner.run(chunks.write_keys_of_part, largest_first) if row is not None]


def _count_part_rows(part: tuple[int, Sequence[AddedFile]]) -> int:
    return sum(file.rows or 0 for file in part[1])
