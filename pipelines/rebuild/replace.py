"""Rebuilt files in the place of a store's own, which are kept beside as `<name>.old-<time>`.

The files are built in a folder of the store's, verified against its log there, and then renamed, one after the other.
That folder must belong to the user who runs this, with nothing but folders and files in it; the names that its control
file gives are checked before anything is renamed, and only folders and files of the store itself are, no links.

A crash between two renames leaves a store that lacks some of them, which a broker makes itself; run again, the rest is
renamed, unless a broker has written to the log since: then all is made anew, as the rest knows nothing of that. Queues
that the log has no record of any longer go with the new ones: they carry their numbers on. A crashed broker's `abort`
is kept beside at last: it would let the next one make parts of the index anew, out of parts of the log.
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

from commitlake.connectors.formats.engine.plan import StoreRange
from commitlake.connectors.formats.engine.stores import Store, find_stores
from commitlake.connectors.formats.format import Format
from commitlake.connectors.formats.small_files import CHECKPOINT
from commitlake.connectors.whole_files import remove_but_last, write_synced
from commitlake.pipelines.rebuild.checkpoint import count_again
from commitlake.pipelines.rebuild.errors import DisagreementError
from commitlake.pipelines.rebuild.plan import PLAN, WORK
from commitlake.pipelines.rebuild.settings import Settings, Wanted
from commitlake.pipelines.verify.admission import Options
from commitlake.pipelines.verify.classes import CLASSES, Severity
from commitlake.pipelines.verify.doctor import verify_stores
from commitlake.pipelines.verify.findings import Findings
from commitlake.pipelines.verify.store_view import ABORT
from commitlake.schemas.layouts.segments import is_segment_name
from commitlake.schemas.store_files import (
    UnsafeFileError,
    check_folder,
    check_own_folder,
    check_relative,
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
"""What the log may have: no index can be other for it, and a broker starts all the same."""
_STEPPED_OVER = frozenset(
    {"log_bad_magic", "log_bad_size", "log_bad_offset", "log_bad_lengths", "log_bad_crc", "log_hole"}
)
"""What a broker steps over, or ends its log at, by its format."""


class Replacement:
    """The rebuilt files of a store, in its own folder, until they take their places."""

    def __init__(
        self,
        root: Path,
        log_format: Format,
        log: StoreRange | None = None,
        wanted: Wanted | None = None,
    ) -> None:
        """Begin, or go on.

        Args:
            root: the store's folder.
            log_format: of the store.
            log: where that begins and ends now; a run goes on with what another has made for the same only.
            wanted: what the user asks for.
        """
        self._root = root
        self._log = None if log is None else [log.start, log.end]
        self._wanted = None if wanted is None else json.loads(json.dumps(asdict(wanted)))
        self._format = log_format
        self._queues = log_format.queue_folders
        self.out = root / FOLDER

    def check_places(self) -> None:
        """See that nothing that is to be replaced is a link, and that the work folder is this user's.

        Raises:
            UnsafeFileError: naming what is not as it must be.
        """
        if check_own_folder(self.out):
            check_own_folder(self.out / WORK)
        hint = ", which --in-place does not replace: give --out, and put the new files in their places yourself"
        for name in self._format.rebuilt_files:
            path = self._root / name
            if path.parent != self._root:
                check_folder(path.parent, hint)
            if path.is_symlink():
                raise UnsafeFileError.of(path, "a file or a folder", f"a symbolic link{hint}")

    @property
    def has_started(self) -> bool:
        """Whether an earlier run was interrupted while it renamed."""
        return os.path.lexists(self.out / _STARTED)

    @property
    def has_started_this(self) -> bool:
        """Whether that run was to make what is asked for now."""
        return self._known(self.out / _STARTED).get("wanted") == self._wanted

    def clear(self) -> bool:
        """Remove what an earlier run has made, but not replaced, unless it can go on; whether the log has changed."""
        if not check_own_folder(self.out):
            return False
        known = self._known(self.out / _STARTED if self.has_started else self.out / WORK / PLAN)
        made_for = known.get("log", [known.get("start"), known.get("end")])
        if known and made_for == self._log:
            return False
        remove_tree(self.out)
        return bool(known)

    @staticmethod
    def _known(path: Path) -> dict[str, Any]:
        """What an earlier run has written down; nothing where it did not come to it."""
        try:
            document = read_json(path)
        except (FileNotFoundError, ValueError):
            return {}
        return document if isinstance(document, dict) else {}

    def take_over_old_queues(self, settings: Settings) -> int:
        """Copy the queues of which the log has no record; how many.

        Args:
            settings: of the run.

        Raises:
            UnsafeFileError: for a link among the queues' folders and files.
        """
        topics, count = settings.topics, 0
        for kind in self._queues:
            top = self._root / kind
            for topic in folders_in(top, below=self._root):
                for queue in folders_in(top / topic, below=self._root) if topics is None or topic in topics else ():
                    new, folder = self.out / kind / topic / queue, top / topic / queue
                    names = files_in(folder, is_segment_name, below=self._root)
                    if names and not check_folder(new):
                        self._copy_synced([folder / name for name in names], new)
                        count += 1
        if count and topics is None and self._format.counts_entries:
            count_again(self.out, settings)
        return count

    def verify(
        self,
        store: Store,
        shifted: Sequence[str],
        topics: Sequence[str] | None = None,
        delay_levels_ms: tuple[int, ...] | None = None,
    ) -> None:
        """See that the new files agree with the log, all of it.

        Args:
            store: whose log it is.
            shifted: queues that lack messages: what follows these stands in front of its number.
            topics: those that were rebuilt, None for all.
            delay_levels_ms: the messageDelayLevel that the new files were made with.

        Raises:
            DisagreementError: naming the first that does not.
        """
        link = self.out / self._format.folder
        remove_tree(link)
        link.symlink_to(self._root / self._format.folder, target_is_directory=True)
        try:
            stores = find_stores(str(self.out), store.broker, (self._format,))
            (report,) = verify_stores(stores, Options(delay_levels_ms, limit=_FINDINGS))
        finally:
            link.unlink()
        allowed = _OF_THE_LOG | (_STEPPED_OVER if self._format.steps_over_damage else frozenset())
        _refuse(report.findings, allowed, frozenset(shifted), None if topics is None else frozenset(topics))

    def replace(self, stamp: str) -> list[Path]:
        """Rename old files away and new ones in; the old ones.

        Args:
            stamp: what the old files' names end in, with a number behind it where some have that name already.

        Raises:
            UnsafeFileError: if the work folder holds anything but what a run of this user makes, or a link would be
                replaced; nothing was renamed.
        """
        started = self.out / _STARTED
        self.check_places()
        check_tree(self.out)
        if not os.path.lexists(started):
            document = {
                "stamp": self._unused(stamp),
                "paths": [str(path) for path in self._new_paths()],
                "log": self._log,
                "wanted": self._wanted,
            }
            write_synced(started, json.dumps(document).encode())
        stamp, paths = self._read_started(started)
        old = []
        for path in paths:
            place, new = self._root / path, self.out / path
            if not os.path.lexists(new):
                continue  # renamed before the run was interrupted
            if os.path.lexists(place):
                old.append(self._keep(path, stamp))
            make_folders(place.parent, below=self._root)
            rename_file(new, place, below=self._root)
            sync_folder(place.parent)
        if Path(CHECKPOINT) in paths and self._is_abort_to_go():
            old.append(self._keep(Path(ABORT), stamp))
        remove_but_last(self.out, _STARTED)
        sync_folder(self._root)
        return old

    def _read_started(self, path: Path) -> tuple[str, list[Path]]:
        """Read what the control file names: the stamp, and what is replaced.

        Raises:
            UnsafeFileError: if it names anything that a run does not make.
        """
        document = self._known(path)
        stamp, names = document.get("stamp"), document.get("paths")
        is_stamp = isinstance(stamp, str) and _STAMP.fullmatch(stamp) is not None
        if not is_stamp or not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UnsafeFileError.of(path, "a stamp, and paths of what is replaced", "another document", errno.EINVAL)
        paths = [Path(check_relative(name)) for name in names]
        for place in paths:
            is_of_topic = len(place.parts) == 2 and place.parts[0] in self._queues
            if not is_of_topic and str(place) not in self._format.rebuilt_files:
                found = f"{str(place)[:100]!r}: remove {self.out}, and run again"
                raise UnsafeFileError.of(path, "paths of queues, index, checkpoint or topics.json", found, errno.EINVAL)
        return str(stamp), paths

    def _keep(self, path: Path, stamp: str) -> Path:
        """Rename an old file or folder away; its new name."""
        kept = self._kept(path, stamp)
        make_folders(kept.parent, below=self._root)
        rename_file(self._root / path, kept, below=self._root)
        return kept

    def _copy_synced(self, files: Sequence[Path], folder: Path) -> None:
        make_folders(folder, below=self.out)
        for path in files:
            copy_to = create_file(folder / path.name, below=self.out)
            with os.fdopen(copy_to, "wb") as copy, os.fdopen(open_file(path, below=self._root), "rb") as file:
                shutil.copyfileobj(file, copy)
                copy.flush()
                os.fsync(copy.fileno())
        sync_folder(folder)

    def _is_abort_to_go(self) -> bool:
        """Whether `abort` has nothing to say any longer.

        The new checkpoint says that all is there, and all was verified. A broker of RocketMQ's that still finds the
        mark deletes the newest IndexFile, and enters again only what the newest segments have; its compacted topics,
        which are not rebuilt, may need it.
        """
        if not self._format.repairs_after_abort or not os.path.lexists(self._root / ABORT):
            return False
        return not any((self._root / _COMPACTED).glob("*"))

    def _unused(self, stamp: str) -> str:
        return next(name for name in _numbered(stamp) if not any(self._root.glob(f"*.old-{name}")))

    def _kept(self, path: Path, stamp: str) -> Path:
        """Where an old file goes: beside what an interrupted run has kept, if a broker has made another since."""
        places = (self._root / f"{path.parts[0]}.old-{name}" / Path(*path.parts[1:]) for name in _numbered(stamp))
        return next(place for place in places if not os.path.lexists(place))

    def _new_paths(self) -> list[Path]:
        """What is there to be renamed: whole folders where all was rebuilt, else those of topics."""
        if os.path.lexists(self.out / CHECKPOINT):
            return [Path(name) for name in self._format.rebuilt_files if os.path.lexists(self.out / name)]
        return [Path(kind) / topic for kind in self._queues for topic in folders_in(self.out / kind)]


def _numbered(stamp: str) -> Iterator[str]:
    return itertools.chain([stamp], (f"{stamp}-{number}" for number in itertools.count(2)))


def _refuse(
    findings: Findings, allowed: frozenset[str], shifted: frozenset[str], topics: frozenset[str] | None
) -> None:
    """Raise for the first finding that speaks against the new files."""
    for code in sorted(findings.codes - allowed):
        if CLASSES[code].severity is Severity.INFO:
            continue
        is_queue = code.startswith(_QUEUE_CLASSES)
        if topics is not None and not is_queue and not code.startswith("log_"):
            continue  # nothing else was made
        kept = findings.kept[code]
        against = [each for each in kept if not (is_queue and _is_explained(each.queue, shifted, topics))]
        if not against and len(kept) < findings.counts[code]:
            against = kept  # more than can be looked at
        if against:
            first = against[0]
            raise DisagreementError(
                f"nothing was replaced: {code} at {first.place}: expected {first.expected}, found {first.found}",
                is_of_log=code.startswith("log_"),
            )


def _is_explained(queue: str, shifted: frozenset[str], topics: frozenset[str] | None) -> bool:
    return queue in shifted or (topics is not None and queue.rpartition("/")[0] not in topics)
