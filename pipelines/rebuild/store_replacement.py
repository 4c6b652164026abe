"""Replacement of a store's files by rebuilt ones. The old files are kept beside them as `<name>.old-<time>`.

The new files are built in a folder inside the store, verified there against the store's log, and then renamed one after
the other. The folder must belong to the user who runs the job, and may hold only folders and files. The names in its
control file are checked before anything is renamed; links are refused.

A crash between two renames leaves a store without some of the files, which a broker makes itself. The next run renames
the rest, unless a broker has written to the log meanwhile: then it starts again, because the rest lacks the new
records. Queues without a record in the log are copied to the new ones, as they hold the next queue offset. Finally the
`abort` file of a crashed broker is renamed as well, because it would let the next broker rebuild parts of the index.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from commitlake.connectors.atomic_files import remove_folder_in_order, write_synced
from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.log_format.checkpoint_and_config import CHECKPOINT
from commitlake.connectors.log_format.format import Format
from commitlake.connectors.reading.snapshots import StoreRange
from commitlake.connectors.reading.stores import Store, find_stores
from commitlake.pipelines.rebuild.checkpoint_and_topics import update_checkpoint_entry_count
from commitlake.pipelines.rebuild.errors import DisagreementError
from commitlake.pipelines.rebuild.plan import PLAN, WORK
from commitlake.pipelines.rebuild.settings import RequestedSettings, Settings
from commitlake.pipelines.verify.finding_classes import CLASSES, Severity
from commitlake.pipelines.verify.findings import Findings
from commitlake.pipelines.verify.store_precheck import VerifyOptions
from commitlake.pipelines.verify.store_verification import verify_stores
from commitlake.pipelines.verify.store_view import ABORT
from commitlake.schemas.layouts.segment_names import is_segment_name
from commitlake.schemas.safe_store_files import (
    UnsafeFileError,
    check_folder,
    check_own_folder,
    check_relative_name,
    check_tree,
    create_file,
    files_in,
    folders_in,
    make_folders,
    open_file,
    read_json,
    remove_tree,
    rename_file,
    sync_folder,
)

FOLDER = ".rebuilt-in-place"
_STARTED = ".replacing"
_STAMP = re.compile("[0-9A-Za-z-]{1,40}")
_COMPACTED = "compaction/compactionLog"
_FINDINGS = 1000
_QUEUE_CLASSES = "queue_"
_OF_THE_LOG = frozenset({"log_lost_messages", "log_torn_tail", "log_torn_clean", "log_stray_file", "log_bad_topic"})
"""Findings of the log that do not concern indexes, and that do not keep a broker from starting."""
_SKIPPED_DAMAGE = frozenset(
    {"log_bad_magic", "log_bad_size", "log_bad_offset", "log_bad_lengths", "log_bad_crc", "log_hole"}
)
"""Damage of the log that brokers of some formats skip."""


class Replacement:
    """Replaces a store's old index files by rebuilt ones, which until then are in a folder inside the store."""

    def __init__(
        self,
        root: Path,
        log_format: Format,
        log: StoreRange | None = None,
        wanted: RequestedSettings | None = None,
    ) -> None:
        """Begin a replacement, or resume one that was interrupted.

        Args:
            root: the store's folder.
            log: the log's range now; a run resumes an earlier one of the same range only.
            wanted: the user's options.
        """
        self._root = root
        self._log = None if log is None else [log.start, log.end]
        self._wanted = None if wanted is None else json.loads(json.dumps(asdict(wanted)))
        self._format = log_format
        self._queues = log_format.queues.folders
        self.out = root / FOLDER

    def check_replaceable(self) -> None:
        """Raise an error if a file to be replaced is a link, or another user owns the work folder.

        Raises:
            UnsafeFileError: naming the file or folder.
        """
        if check_own_folder(self.out):
            check_own_folder(self.out / WORK)
        hint = ", which --in-place does not replace: give --out, and put the new files in their places yourself"
        for name in self._format.folders.rebuilt:
            path = self._root / name
            if path.parent != self._root:
                check_folder(path.parent, hint)
            if path.is_symlink():
                raise UnsafeFileError.of(path, "a file or a folder", f"a symbolic link{hint}")

    @property
    def has_started(self) -> bool:
        """True if an earlier run was interrupted while it renamed files."""
        return os.path.lexists(self.out / _STARTED)

    @property
    def has_started_with_same_options(self) -> bool:
        """True if an earlier run was interrupted while it renamed files, and had the same options as this one."""
        return self._read_document(self.out / _STARTED).get("wanted") == self._wanted

    def clear_new_files(self) -> bool:
        """Remove the new files of an earlier run, unless this run can resume it.

        Returns:
            True if they were removed because the log has changed.
        """
        if not check_own_folder(self.out):
            return False
        known = self._read_document(self.out / _STARTED if self.has_started else self.out / WORK / PLAN)
        made_for = known.get("log", [known.get("start"), known.get("end")])
        if known and made_for == self._log:
            return False
        remove_tree(self.out)
        return bool(known)

    @staticmethod
    def _read_document(path: Path) -> dict[str, Any]:
        """Return the JSON object in a file that an earlier run has written; empty if there is none."""
        try:
            document = read_json(path)
        except (FileNotFoundError, ValueError):
            return {}
        return document if isinstance(document, dict) else {}

    def copy_queues_without_records(self, settings: Settings) -> int:
        """Copy the store's queues without a record in the log to the new files, and return their number.

        Raises:
            UnsafeFileError: for a link among the queues' folders and files.
        """
        topics, count = settings.topics, 0
        for kind in self._queues:
            top = self._root / kind
            for topic in folders_in(top, trusted_root=self._root):
                for queue in (
                    folders_in(top / topic, trusted_root=self._root) if topics is None or topic in topics else ()
                ):
                    new, folder = self.out / kind / topic / queue, top / topic / queue
                    names = files_in(folder, is_segment_name, trusted_root=self._root)
                    if names and not check_folder(new):
                        self._copy_files_synced([folder / name for name in names], new)
                        count += 1
        if count and topics is None and self._format.small_files.counts_entries:
            update_checkpoint_entry_count(self.out, settings)
        return count

    def verify_new_files(
        self,
        store: Store,
        shifted_queues: Sequence[str],
        topics: Sequence[str] | None = None,
        delay_levels_ms: tuple[int, ...] | None = None,
    ) -> None:
        """Verify the rebuilt files against the whole log.

        Args:
            shifted_queues: queues that lack messages, so that later entries are at smaller queue offsets than their
                own.
            topics: the topics that were rebuilt, None for all.
            delay_levels_ms: the messageDelayLevel that the new files were made with.

        Raises:
            DisagreementError: naming the first difference.
        """
        link = self.out / self._format.folder
        remove_tree(link)
        # With the log linked beside them, the new files look like a store, and are verified like any other.
        link.symlink_to(self._root / self._format.folder, target_is_directory=True)
        try:
            stores = find_stores(str(self.out), store.broker, formats=all_formats().select_only(self._format))
            (report,) = verify_stores(stores, VerifyOptions(delay_levels_ms, limit=_FINDINGS))
        finally:
            link.unlink()
        allowed = _OF_THE_LOG | (_SKIPPED_DAMAGE if self._format.brokers.steps_over_damage else frozenset())
        _check_findings(
            report.findings, allowed, frozenset(shifted_queues), None if topics is None else frozenset(topics)
        )

    def replace_files(self, suffix: str) -> list[Path]:
        """Rename the old files, move the new ones to their paths, and return the new paths of the old files.

        Args:
            suffix: suffix of the old files' names; a number is added if files with that name exist.

        Raises:
            UnsafeFileError: if the work folder holds other files than a run of this user makes, or a link would be
                replaced; nothing was renamed.
        """
        started = self.out / _STARTED
        self.check_replaceable()
        check_tree(self.out)
        # The paths are fixed on disk before the first rename, so that an interrupted run can be resumed.
        if not os.path.lexists(started):
            document = {
                "stamp": self._unused_suffix(suffix),
                "paths": [str(path) for path in self._new_paths()],
                "log": self._log,
                "wanted": self._wanted,
            }
            write_synced(started, json.dumps(document).encode())
        suffix, paths = self._read_control_file(started)
        old = []
        for path in paths:
            place, new = self._root / path, self.out / path
            if not os.path.lexists(new):
                continue  # renamed before the run was interrupted
            # The old file first: a killed run leaves a file too few, which a broker makes itself, never two states
            # mixed.
            if os.path.lexists(place):
                old.append(self._rename_old_file(path, suffix))
            make_folders(place.parent, trusted_root=self._root)
            rename_file(new, place, trusted_root=self._root)
            sync_folder(place.parent)
        # Last: until all files are in place, the next broker has to repair the store.
        if Path(CHECKPOINT) in paths and self._is_abort_obsolete():
            old.append(self._rename_old_file(Path(ABORT), suffix))
        remove_folder_in_order(self.out, _STARTED)
        sync_folder(self._root)
        return old

    def _read_control_file(self, path: Path) -> tuple[str, list[Path]]:
        """Return the suffix for old files and the paths to replace, from the file that an interrupted run left."""
        document = self._read_document(path)
        stamp, names = document.get("stamp"), document.get("paths")
        is_stamp = isinstance(stamp, str) and _STAMP.fullmatch(stamp) is not None
        if not is_stamp or not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UnsafeFileError.of(path, "a suffix and the paths to replace", "another document", errno.EINVAL)
        paths = [Path(check_relative_name(name)) for name in names]
        for place in paths:
            is_of_topic = len(place.parts) == 2 and place.parts[0] in self._queues
            if not is_of_topic and str(place) not in self._format.folders.rebuilt:
                found = f"{str(place)[:100]!r}: remove {self.out}, and run again"
                raise UnsafeFileError.of(path, "paths of queues, index, checkpoint or topics.json", found, errno.EINVAL)
        return str(stamp), paths

    def _rename_old_file(self, path: Path, suffix: str) -> Path:
        """Rename an old file or folder, and return its new path."""
        kept = self._backup_path(path, suffix)
        make_folders(kept.parent, trusted_root=self._root)
        rename_file(self._root / path, kept, trusted_root=self._root)
        return kept

    def _copy_files_synced(self, files: Sequence[Path], folder: Path) -> None:
        make_folders(folder, trusted_root=self.out)
        for path in files:
            copy_to = create_file(folder / path.name, trusted_root=self.out)
            with os.fdopen(copy_to, "wb") as copy, os.fdopen(open_file(path, trusted_root=self._root), "rb") as file:
                shutil.copyfileobj(file, copy)
                copy.flush()
                os.fsync(copy.fileno())
        sync_folder(folder)

    def _is_abort_obsolete(self) -> bool:
        """Return whether the store's `abort` file can be removed after the replacement.

        All new files are verified, and the new checkpoint covers them. A RocketMQ broker that still finds `abort`
        deletes the newest IndexFile, and enters only the records of the newest segments again. Compacted topics, which
        are not rebuilt, may need the file.
        """
        if not self._format.brokers.repairs_after_abort or not os.path.lexists(self._root / ABORT):
            return False
        return not any((self._root / _COMPACTED).glob("*"))

    def _unused_suffix(self, suffix: str) -> str:
        return next(name for name in _numbered_suffixes(suffix) if not any(self._root.glob(f"*.old-{name}")))

    def _backup_path(self, path: Path, suffix: str) -> Path:
        """Return the path to which an old file is renamed, with a number if that path is taken."""
        places = (
            self._root / f"{path.parts[0]}.old-{name}" / Path(*path.parts[1:]) for name in _numbered_suffixes(suffix)
        )
        return next(place for place in places if not os.path.lexists(place))

    def _new_paths(self) -> list[Path]:
        """Return the relative paths to replace: whole folders if all was rebuilt, otherwise folders of topics."""
        if os.path.lexists(self.out / CHECKPOINT):
            return [Path(name) for name in self._format.folders.rebuilt if os.path.lexists(self.out / name)]
        return [Path(kind) / topic for kind in self._queues for topic in folders_in(self.out / kind)]


def _numbered_suffixes(suffix: str) -> Iterator[str]:
    return itertools.chain([suffix], (f"{suffix}-{number}" for number in itertools.count(2)))


def _check_findings(
    findings: Findings, allowed_codes: frozenset[str], shifted_queues: frozenset[str], topics: frozenset[str] | None
) -> None:
    """Raise an error if the verification of rebuilt files found a problem that is not allowed."""
    for code in sorted(findings.codes - allowed_codes):
        if CLASSES[code].severity is Severity.INFO:
            continue
        is_queue = code.startswith(_QUEUE_CLASSES)
        if topics is not None and not is_queue and not code.startswith("log_"):
            continue  # nothing else was made
        kept = findings.kept[code]
        against = [each for each in kept if not (is_queue and _is_expected_finding(each.queue, shifted_queues, topics))]
        if not against and len(kept) < findings.counts[code]:
            against = kept  # more than can be examined
        if against:
            first = against[0]
            raise DisagreementError(
                f"nothing was replaced: {code} at {first.place_text}: expected {first.expected}, found {first.found}",
                is_of_log=code.startswith("log_"),
            )


def _is_expected_finding(queue: str, shifted_queues: frozenset[str], topics: frozenset[str] | None) -> bool:
    return queue in shifted_queues or (topics is not None and queue.rpartition("/")[0] not in topics)
