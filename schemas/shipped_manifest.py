"""Manifests of a shipped store, which list the files and byte ranges that the copy contains.

`commitlake ship` copies a broker's store to a prefix in an object store, or to a folder. The copy has the same paths as
the store, and an additional folder `shipped_bytes`:

    commitlog/00000000000000000000     a file that is complete ("sealed")
    config/topics.json, …              newest snapshot of a small file
    shipped/log.json                   manifest of the log's segments; in HDFS, a folder with its newest versions
    shipped/files.json                 manifest of all other files; in HDFS, likewise
    shipped/parts/of-commitlog/…       object stores and HDFS only: parts of files that are not sealed yet
    shipped/temporary/…                HDFS only: files that are being written
    shipped/lock                       folders only: locked by the agent that writes there

Readers must rely on the manifests only. Each entry covers the first bytes of a file without a gap, and a segment has an
entry only if all segments before it are sealed. So the log that a manifest describes is always a prefix of the broker's
log, without holes. Bytes after the shipped ones, up to the file's size, read as zeros, like bytes that the broker has
not written yet.

In an object store, each part is an object whose name contains its range and CRC-32, so objects never change:

    shipped/parts/of-commitlog/00000000001073741824/00000000000016777216-8388608-1b2c3d4e

A part is deleted only after a manifest without it has been written. In a folder, parts are written into the file
itself, so jobs can read the folder as a store; the manifest says which bytes are complete.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from commitlake.schemas.errors import CommitLakeError, ExitCode
from commitlake.schemas.layouts.integer_parsing import INT64_MAX
from commitlake.schemas.layouts.segment_names import MAX_START_OFFSET
from commitlake.schemas.safe_store_files import MAX_SMALL_FILE_BYTES, UnsafeFileError, check_relative_name

FOLDER = "shipped"
LOG_MANIFEST = f"{FOLDER}/log.json"
FILES_MANIFEST = f"{FOLDER}/files.json"
LOCK = f"{FOLDER}/lock"
PARTS = f"{FOLDER}/parts"
MAX_MANIFEST_BYTES = MAX_SMALL_FILE_BYTES
VERSION_DIGITS = 20
_PART_NAME = re.compile(rf"{PARTS}/of-.+/[0-9]{{20}}-[0-9]{{1,19}}-[0-9a-f]{{8}}", re.DOTALL)
_VERSION = 1
_MAX_CRC = (1 << 32) - 1


class ManifestError(CommitLakeError):
    """Error for a manifest that is damaged, or was not written by this program."""

    exit_code = ExitCode.USAGE


@dataclass(frozen=True, slots=True)
class Part:
    """Byte range of a store's file that was copied as one object, with its checksum.

    Attributes:
        offset: position of its first byte in the file.
        size: number of bytes.
        crc: CRC-32 of the bytes.
        is_live: whether the broker could still write to the file when it was read.
    """

    offset: int
    size: int
    crc: int
    is_live: bool = False

    @property
    def end(self) -> int:
        """Position after the last byte."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class ShippedFile:
    """List of the byte ranges of one file of a store that were copied.

    Attributes:
        name: path in the store.
        size: size of the whole file; bytes after the shipped ones are zeros.
        parts: the shipped ranges, without a gap from the first byte on; empty for a sealed file.
        is_sealed: whether the copy is one complete file under the file's own name.
        crc: CRC-32 of a sealed file's bytes; None for one that is not sealed.
        head_size: number of first bytes that identify the file.
        head_crc: CRC-32 of these bytes.
        modified_ms: time at which the broker wrote a small file, ms; 0 for other files.
    """

    name: str
    size: int
    parts: tuple[Part, ...] = ()
    is_sealed: bool = False
    crc: int | None = None
    head_size: int = 0
    head_crc: int = 0
    modified_ms: int = 0

    @property
    def shipped_bytes(self) -> int:
        """Number of copied bytes, counted from the start of the file."""
        if self.is_sealed:
            return self.size
        return self.parts[-1].end if self.parts else 0


@dataclass(frozen=True, slots=True)
class Manifest:
    """List of the files of a store's log, or of its other files, with the bytes of each that were copied.

    Attributes:
        broker: name of the store.
        folder: folder of the log: `commitlog` or `journal`.
        files: the shipped files by name, in order.
        lost: ranges of the log, as physical offsets, that the broker deleted before they were shipped.
        agent: random id of the agent that wrote it.
        generation: number of the manifest, which increases with every version.
        written_at_ms: time by the agent's clock; for display, and to detect that the log may be newer than the queues.
    """

    broker: str
    folder: str
    files: Mapping[str, ShippedFile] = field(default_factory=dict)
    lost: tuple[tuple[int, int], ...] = ()
    agent: str = ""
    generation: int = 0
    written_at_ms: int = 0

    def with_file(self, file: ShippedFile) -> Manifest:
        """Return a copy of the manifest with a file's entry added or replaced."""
        return replace(self, files={**self.files, file.name: file})


def part_name(file_name: str, part: Part) -> str:
    """Return the object name of a part, relative to the prefix of the copy.

    >>> part_name("commitlog/00000000000000000000", Part(16, 8, 255))
    'shipped/parts/of-commitlog/00000000000000000000/00000000000000000016-8-000000ff'
    """
    return f"{PARTS}/of-{file_name}/{part.offset:020d}-{part.size}-{part.crc:08x}"


def make_fetch_hint(root: str) -> str:
    """Return advice for the end of an error message: to fetch the copy of the store into a local folder first.

    >>> make_fetch_hint("s3://logs/a/commitlog")
    ". 'commitlake ship --store s3://logs/a --to FOLDER --once' fetches a copy that 'commitlake ship' made"
    >>> make_fetch_hint("/data/store/commitlog")
    ''
    """
    if not root.startswith(("s3:", "abfs:", "abfss:", "gs:", "hdfs:")):
        return ""
    store = root.rsplit("/", 1)[0]
    return f". 'commitlake ship --store {store} --to FOLDER --once' fetches a copy that 'commitlake ship' made"


def is_part_name(name: str) -> bool:
    """Return whether an object's name has the form of a part's name.

    >>> [is_part_name(f"shipped/parts/of-{name}/{20 * '0'}-8-000000ff") for name in ("commitlog/0", "")]
    [True, False]
    """
    try:
        check_relative_name(name)
    except UnsafeFileError:
        return False
    return _PART_NAME.fullmatch(name) is not None


def is_version_name(name: str) -> bool:
    """Return whether a file name in HDFS has the form of a manifest version's name.

    >>> is_version_name("00000000000000000017"), is_version_name("17")
    (True, False)
    """
    return len(name) == VERSION_DIGITS and name.isascii() and name.isdecimal()


def serialize_manifest(manifest: Manifest) -> bytes:
    """Return a manifest as JSON."""
    files = [_file_to_json(file) for _, file in sorted(manifest.files.items())]
    document = {
        "version": _VERSION,
        "broker": manifest.broker,
        "folder": manifest.folder,
        "agent": manifest.agent,
        "generation": manifest.generation,
        "written_at_ms": manifest.written_at_ms,
        "lost": [list(each) for each in manifest.lost],
        "files": files,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _file_to_json(file: ShippedFile) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": file.name, "size": file.size, "head": [file.head_size, file.head_crc]}
    if file.is_sealed:
        return {**fields, "crc": file.crc, "modified_ms": file.modified_ms}
    return {**fields, "parts": [[part.offset, part.size, part.crc, int(part.is_live)] for part in file.parts]}


def parse_manifest(data: bytes, location: str) -> Manifest:
    """Parse a manifest from JSON, and refuse one that names files outside the store.

    Args:
        data: content of the file or object.
        location: its path or URI, for errors.

    Raises:
        ManifestError: if it is not a manifest, or names files outside the store.
    """
    try:
        document = json.loads(data)
        if document["version"] != _VERSION:
            raise ManifestError(
                f"{location}: expected a manifest of version {_VERSION}, found version {document['version']!r:.50}: "
                "another version of CommitLake wrote it"
            )
        files = _index_by_name([_parse_file(each) for each in document["files"]])
        manifest = Manifest(
            broker=_check_name(document["broker"]),
            folder=_check_name(document["folder"]),
            files=files,
            lost=tuple((_check_number(start), _check_number(end)) for start, end in document["lost"]),
            agent=_check_text(document["agent"]),
            generation=_check_number(document["generation"]),
            written_at_ms=_check_number(document["written_at_ms"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, UnsafeFileError) as error:
        text = f"{type(error).__name__}: {error}"
        raise ManifestError(
            f"{location}: expected the manifest of a shipped store, found something else: {text[:200]}"
        ) from None
    return manifest


def _index_by_name(files: list[ShippedFile]) -> dict[str, ShippedFile]:
    named = {file.name: file for file in files}
    if len(named) != len(files):
        raise ValueError("expected each file once, found one that is listed twice")
    return named


def _parse_file(fields: Any) -> ShippedFile:
    name = _check_text(fields["name"])
    check_relative_name(name)
    size, (head_size, head_crc) = _check_number(fields["size"], MAX_START_OFFSET), fields["head"]
    head = _check_number(head_size), _check_number(head_crc, _MAX_CRC)
    if "parts" not in fields:
        modified_ms = _check_number(fields["modified_ms"])
        return ShippedFile(name, size, (), True, _check_number(fields["crc"], _MAX_CRC), *head, modified_ms)
    parts = tuple(
        Part(_check_number(offset), _check_number(length), _check_number(crc, _MAX_CRC), bool(is_live))
        for offset, length, crc, is_live in fields["parts"]
    )
    # Without gaps and within the file: readers take the last part's end for the number of shipped bytes.
    end = 0
    for part in parts:
        if part.offset != end or not part.size or part.end > size:
            raise ValueError(
                f"{name[:100]}: expected a part that begins at byte {end} and ends within the file, found one of "
                f"{part.size} bytes at byte {part.offset}"
            )
        end = part.end
    return ShippedFile(name, size, parts, False, None, *head)


def _check_number(value: Any, largest: int = INT64_MAX) -> int:
    if type(value) is not int or not 0 <= value <= largest:
        raise ValueError(f"expected a number from 0 to {largest}, found {value!r:.50}")
    return value


def _check_name(value: Any) -> str:
    """Check that a value can be the name of a store or folder, as one part of a path, and return it."""
    if len(check_relative_name(_check_text(value)).parts) != 1 or not value.isprintable():
        raise ValueError(f"expected the name of a store or folder, found {value!r:.50}")
    return str(value)


def _check_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, found {value!r:.50}")
    return value
