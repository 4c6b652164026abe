"""Seals of a Delta table's log: digests of the files that a reader needs, written after each commit.

Delta's own readers notice an entry that is not JSON. They do not notice an entry that is empty, that is cut at the end
of a line, or in which a value has changed, nor a missing newest entry: they silently return a smaller table. A seal of
version 7 lists the entries after the newest checkpoint up to 7, and that checkpoint, with sizes and SHA-256. It is
`_delta_log/_seals/<version>.json`, which Delta's readers ignore.

A seal is written after the commit. If a writer was killed before it wrote the seal, or is another program, the newest
entries have no seal until this project's next commit; of these, only complete lines of JSON are checked. The two newest
seals are kept, so one of them may be damaged.

A seal also has the sum of the rows that this project has written, see `row_sums`. It is not that of the table if
another program has changed rows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from commitlake.connectors.lake.delta_log.entries import find_commit_info
from commitlake.connectors.lake.delta_log.file_names import SEALS
from commitlake.connectors.lake.delta_log.files import LogFile, LogFolder, LogListing, entry_name
from commitlake.connectors.lake.delta_log.newest_versions import add_digest_line, sha256_hex, verify_digest_line
from commitlake.connectors.lake.delta_log.row_sum_changes import COMMIT_KEY, SumChange
from commitlake.schemas.layouts.integer_parsing import parse_int64

_KEPT = 2
_FAR = 1000
"""Largest distance of a damaged seal's version from the newest known version; versions after that are ignored."""


@dataclass(frozen=True, slots=True)
class Seal:
    """Checksums of the files that a table's log had at one version, by which later damage is found.

    Attributes:
        version: version of the table.
        base: version of the checkpoint, -1 for none.
        files: size and SHA-256 by name.
        row_sum: sum of the rows that this project has written, see `row_sums`; None if it is not known.
    """

    version: int
    base: int
    files: dict[str, tuple[int, str]] = field(default_factory=dict)
    row_sum: int | None = None

    def to_bytes(self) -> bytes:
        """Return the content of the seal's file: one line with the seal, and one with a digest of that line."""
        value = {"version": self.version, "base": self.base, "files": self.files, "rowSum": self.row_sum}
        return add_digest_line(json.dumps(value, sort_keys=True).encode())

    @classmethod
    def from_bytes(cls, data: bytes) -> Seal | None:
        """Parse a seal's file; return None if it is damaged."""
        text = verify_digest_line(data)
        if text is None:
            return None
        value: dict[str, Any] = json.loads(text)
        files = {name: (size, sha) for name, (size, sha) in value["files"].items()}
        return cls(value["version"], value["base"], files, value.get("rowSum"))


_known_digests: dict[tuple[str, str, int, int], str] = {}
"""Digests by table, name, size and time, which identify a file that is never changed.

They hold for every `Lake` of the process: a long run opens the same logs repeatedly, and `metrics` for each scrape.
"""


def compute_file_digest(folder: LogFolder, file: LogFile) -> str:
    """Return the SHA-256 of a file of the log.

    Raises:
        FileNotFoundError: if it was deleted meanwhile.
    """
    key = (folder.table_uri, file.name, file.size, file.mtime_ns)
    # Without a time, a replaced file of the same size could not be told from the old one, so nothing is kept.
    if not file.mtime_ns or key not in _known_digests:
        found = sha256_hex(folder.read(file.name))
        if not file.mtime_ns:
            return found
        if len(_known_digests) > 10_000:
            _known_digests.clear()
        _known_digests[key] = found
    return _known_digests[key]


def read_newest_seal(folder: LogFolder, listing: LogListing) -> tuple[Seal | None, list[str]]:
    """Return the newest intact seal of a table's log, and the names of newer seals that are damaged."""
    damaged: list[str] = []
    for name in listing.seals:
        try:
            seal = Seal.from_bytes(folder.read(name, SEALS))
        except FileNotFoundError:  # deleted by a writer meanwhile
            continue
        if seal is not None:
            return seal, damaged
        damaged.append(name)
    return None, damaged


def newest_version(listing: LogListing, seal: Seal | None) -> int:
    """Return the newest version that a log has or had, according to the log, its seals and the lake's own record.

    The name of a damaged seal counts only if it is near the known versions, because anybody can make up a name.
    """
    known = max(listing.newest_version, listing.noted, seal.version if seal else -1)
    named = (parse_int64(name.removesuffix(".json")) or 0 for name in listing.seals)
    return max([known, *(version for version in named if version <= known + _FAR)])


def list_needed_files(listing: LogListing) -> list[LogFile]:
    """Return the files that a reader of the newest version needs, in order."""
    entries = [listing.entries[version] for version in sorted(listing.entries) if version >= listing.checkpoint_version]
    return [*listing.checkpoints.get(listing.checkpoint_version, []), *entries]


def expected_row_sum(folder: LogFolder, listing: LogListing, seal: Seal | None) -> int | None:
    """Return the row sum (checksum of all rows) that a table should have at its newest version; None if unknown.

    Args:
        seal: the newest intact seal.
    """
    total, first = (0, 0) if seal is None else (seal.row_sum, seal.version + 1)
    for version in range(first, listing.newest_version + 1):
        try:
            info = find_commit_info(folder.read(entry_name(version)))
        except FileNotFoundError:
            # Unknown from here on, until a commit states the whole sum.
            total = None
            continue
        change = SumChange.parse((info or {}).get(COMMIT_KEY))
        total = total if change is None else change.apply_to(total)
    return total


def write_seal(
    folder: LogFolder, listing: LogListing, row_sum: int | None = None, *, replaces_older_seals: bool = False
) -> None:
    """Store the checksums of an intact log as its new seal, and delete older seals.

    Args:
        row_sum: sum of the rows, if it is known.
        replaces_older_seals: whether to delete earlier seals, because the log was repaired.
    """
    name = entry_name(listing.newest_version)
    files = {file.name: (file.size, compute_file_digest(folder, file)) for file in list_needed_files(listing)}
    # The new seal is written first, so that a log is never without one. If this process is killed before the next line,
    # the next seal records the version.
    folder.write(name, Seal(listing.newest_version, listing.checkpoint_version, files, row_sum).to_bytes(), SEALS)
    if replaces_older_seals or listing.noted < listing.newest_version:
        folder.record_newest_version(listing.newest_version)
    older = [seal for seal in listing.seals if seal != name]
    for seal in older if replaces_older_seals else older[_KEPT - 1 :]:
        folder.delete(seal, SEALS)
