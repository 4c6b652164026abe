"""Comparison of records with their entries in IndexFiles, chunk by chunk, and checks of a file's chains."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from commitlake.connectors.log_format.files import IndexedFile
from commitlake.connectors.log_format.indexes import IndexData
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.files.segment_files import LocalFile
from commitlake.connectors.reading.files.segment_windows import Mapping
from commitlake.pipelines.verify import index_chains
from commitlake.pipelines.verify.findings import Finding, Findings
from commitlake.pipelines.verify.index_files import ENTRY_DTYPE, IndexPart, read_entries_between
from commitlake.pipelines.verify.store_view import StoreView
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.rocketmq.indexfile import ENTRY

_PIECE_BYTES = 8 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CODES = {
    index_chains.MISSING: "index_missing_entry",
    index_chains.WRONG_HASH: "index_wrong_hash",
    index_chains.DANGLING: "index_dangling_entry",
    index_chains.WRONG_TIME: "index_wrong_time",
    index_chains.REPEATED: "index_repeated_entry",
}
_CHAIN_CODES = {
    index_chains.EMPTY: "index_empty_entry",
    index_chains.LOOP: "index_chain_loop",
    index_chains.WRONG_CHAIN: "index_wrong_chain",
    index_chains.UNREACHABLE: "index_unreachable",
    index_chains.DISORDER: "index_disorder",
    index_chains.BAD_SLOT: "index_bad_slot",
}


class IndexChecker:
    """Compares the keys of records with their entries in IndexFiles, chunk by chunk.

    Attributes:
        not_copied: number of records with keys that are not in the IndexFiles of a copy, which lacks the newest one.
        first_not_copied: physical offset of the first of them; None without one.
    """

    def __init__(self, view: StoreView, findings: Findings) -> None:
        self._view = view
        self._findings = findings
        self._open: dict[str, IndexedFile] = {}
        self.not_copied = 0
        self.first_not_copied: int | None = None

    def close(self) -> None:
        """Close all open IndexFiles."""
        while self._open:
            self._open.popitem()[1].close()

    def check_chunk(self, index_data: IndexData) -> None:
        """Compare the keys of a chunk's records with their index entries."""
        view = self._view
        if not view.index:
            return
        begin, end = view.index[0].first_offset, view.index[-1].last_offset
        rows = slice(*np.searchsorted(index_data.physical_offset, [begin, end + 1]).tolist())
        self._report_keys_outside_files(index_data, rows, begin)
        if rows.start == rows.stop and index_data.end <= begin:
            return
        # Entries before the log's begin, in the oldest file, belong to segments that were deleted.
        stretches = [
            (
                part,
                *read_entries_between(
                    self._open_index_file(part), part, max(index_data.start, view.start), index_data.end
                ),
            )
            for part in view.index
            if part.first_offset < index_data.end and part.last_offset >= index_data.start
        ]
        self._compare_entries(index_data, rows, [each for each in stretches if len(each[2])])

    def _open_index_file(self, part: IndexPart) -> IndexedFile:
        """Open an IndexFile if it is not open, and close those before it, which are no longer needed."""
        if part.name not in self._open:
            before = [each.name for each in self._view.index if each.last_offset < part.first_offset]
            for name in self._open.keys() & set(before):
                self._open.pop(name).close()
            self._open[part.name] = self._view.files.open(part.name)
        return self._open[part.name]

    def _report_keys_outside_files(self, index_data: IndexData, rows: slice, begin: int) -> None:
        """Report records with keys that are before the first IndexFile or after the last one."""
        counts = np.diff(index_data.key_ends, prepend=0)
        before, after = np.flatnonzero(counts[: rows.start]), np.flatnonzero(counts[rows.stop :]) + rows.stop
        if len(before):
            offset = int(index_data.physical_offset[before[0]])
            self._findings.add_many(
                "index_missing_range",
                len(before),
                [
                    Finding(
                        "index_missing_range", "index", physical_offset=offset,
                        found=f"an index from {begin} on", expected="one from there on"
                    )
                ],
            )  # fmt: skip
        if self._view.lacks_newest_index:
            if len(after):
                self._report_keys_not_copied(int(index_data.physical_offset[after[0]]), len(after))
            return
        code = "index_not_dispatched" if self._view.may_indexes_lag else "index_missing_entry"
        self._findings.add_many(
            code,
            len(after),
            (
                Finding(code, "index", physical_offset=int(index_data.physical_offset[row]), found="no entry",
                        expected=f"entries for {counts[row]} keys")
                for row in after[: self._view.limit].tolist()
            ),
        )  # fmt: skip

    def _report_keys_not_copied(self, offset: int, record_count: int) -> None:
        known = offset if self.first_not_copied is None else self.first_not_copied
        self.first_not_copied = min(known, offset)
        self.not_copied += record_count

    def _compare_entries(
        self, index_data: IndexData, rows: slice, entries_by_part: list[tuple[IndexPart, int, Array]]
    ) -> None:
        entries = np.concatenate([np.empty(0, ENTRY_DTYPE), *(each for _, _, each in entries_by_part)])
        numbers = np.concatenate([np.empty(0, np.int64), *(n + np.arange(len(e)) for _, n, e in entries_by_part)])
        of_part = np.repeat(np.arange(len(entries_by_part)), [len(each) for _, _, each in entries_by_part])
        written = np.logical_or.reduce([entries[name] != 0 for name in ENTRY_DTYPE.names or ()])
        if not written.all():  # empty entries are reported by `check_index_chains`
            entries, numbers, of_part = entries[written], numbers[written], of_part[written]
        offsets = entries["physical_offset"].astype(np.int64)
        begins = np.array([part.begin_timestamp for part, _, _ in entries_by_part], np.int64)[of_part]
        begins[numbers == 1] = -1  # measured from the file before
        key_begin = int(index_data.key_ends[rows.start - 1]) if rows.start else 0
        key_ends = index_data.key_ends[rows] - key_begin
        hashes = index_data.key_hashes[key_begin : key_begin + (int(key_ends[-1]) if len(key_ends) else 0)]
        problems = np.empty((3, len(hashes) + 3 * len(offsets) + 1), np.int64)
        count = index_chains.compare_entries(
            index_data.physical_offset[rows], index_data.store_timestamp[rows], key_ends.astype(np.int32), hashes,
            index_data.tags_hash[rows], offsets, entries["key_hash"].astype(np.int32),
            entries["time_diff"].astype(np.int32), begins, problems,
        )  # fmt: skip
        for kind, code in _CODES.items():
            chosen = problems[:, :count][:, problems[0, :count] == kind]
            if kind in (index_chains.MISSING, index_chains.DANGLING) and chosen.shape[1]:
                chosen = self._drop_undecidable_problems(index_data, rows, offsets, chosen)
            first = (
                self._entry_finding(
                    code, index_data, rows.start + row if row >= 0 else None, entries_by_part, of_part, numbers, entry
                )
                for _, row, entry in chosen[:, : self._view.limit].T.tolist()
            )
            self._findings.add_many(code, chosen.shape[1], first)

    def _drop_undecidable_problems(
        self, index_data: IndexData, rows: slice, entry_offsets: Array, problems: Array
    ) -> Array:
        """Remove problems at both ends of the index, where files are missing, and those due to log damage.

        Keys of the first record may be in a file that was deleted. Keys of the last record may be still to be written,
        or in the newest file, which a copy lacks.
        Entries of damaged records point to damage, which is a finding of the log.
        """
        kept = np.ones(problems.shape[1], bool)
        of_row = problems[1] >= 0
        at = index_data.physical_offset[rows][problems[1][of_row]]
        kept[of_row] &= at != self._view.index[0].first_offset
        last = self._view.index[-1].last_offset
        if self._view.lacks_newest_index and (at == last).any():
            self._report_keys_not_copied(last, 1)
        if self._view.may_indexes_lag or self._view.lacks_newest_index:
            kept[of_row] &= at != last
        if index_data.bad:
            action_columns = problems[2] >= 0
            leads = entry_offsets[problems[2][action_columns]]
            damaged = np.zeros(len(leads), bool)
            for bad in index_data.bad:
                damaged |= (leads >= bad.start) & (leads < bad.end)
            kept[action_columns] &= ~damaged
        return problems[:, kept]

    def _entry_finding(
        self, code: str, index_data: IndexData, row: int | None, entries_by_part: list[tuple[IndexPart, int, Array]],
        part_indexes: Array,
        entry_numbers: Array, entry: int,
    ) -> Finding:  # fmt: skip
        offset = None if row is None else int(index_data.physical_offset[row])
        if entry < 0:
            return Finding(code, "index", physical_offset=offset, found="no entry", expected="an entry for each key")
        part, first, entries = entries_by_part[int(part_indexes[entry])]
        number = int(entry_numbers[entry])
        values = entries[number - first]
        found = f"hash {values['key_hash']}, offset {values['physical_offset']}, {values['time_diff']} s"
        expected = "a record that begins there"
        if row is not None:
            begin = int(index_data.key_ends[row - 1]) if row else 0
            hashes = [
                *index_data.key_hashes[begin : index_data.key_ends[row]].tolist(),
                *index_data.tags_hash[row : row + 1].tolist(),
            ]
            expected = f"hashes {', '.join(map(str, hashes[:8]))}, stored at {index_data.store_timestamp[row]} ms"
        return Finding(
            code, part.name, part.geometry.entry_position(number), offset, number=number, found=found, expected=expected
        )


def check_index_chains(view: StoreView, part: IndexPart) -> Findings:
    """Check the hash slots and chains of an IndexFile."""
    file = view.files.open(part.name)
    try:
        # Chains lead to any place of the file, so it is mapped; parts of a remote one would be requested again and
        # again.
        if isinstance(file, LocalFile):
            return _check_open_file(view, part, file.descriptor)
        with _fetch_to_temporary_file(file, part, view.files.location_of(part.name)) as descriptor:
            return _check_open_file(view, part, descriptor)
    finally:
        file.close()


@contextmanager
def _fetch_to_temporary_file(file: IndexedFile, part: IndexPart, place_text: str) -> Iterator[int]:
    """Yield the descriptor of a temporary file with the content of an IndexFile in a shipped copy."""
    size = part.geometry.file_size
    window = np.empty(min(size, _PIECE_BYTES), np.uint8)
    try:
        with tempfile.TemporaryFile(prefix="commitlake-index-") as copy:
            for position in range(0, size, _PIECE_BYTES):
                piece = window[: size - position]
                file.read_into(piece, position)
                copy.write(piece.data)
            copy.flush()
            yield copy.fileno()
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise StoreError(
            f"{place_text}: {size} bytes of room are needed in the temporary folder: {error.strerror}. Set TMPDIR to a "
            "folder with more room"
        ) from None


def _check_open_file(view: StoreView, part: IndexPart, descriptor: int) -> Findings:
    """Check an open IndexFile through a memory map, and report it as a finding if the file is truncated meanwhile."""
    size = part.geometry.file_size
    mapping = Mapping.map_file(descriptor, 0, size)
    if mapping is None:
        memory = np.frombuffer(bytearray(os.pread(descriptor, size, 0)), np.uint8)
        return (
            _check_mapped_chains(view, part, memory)
            if len(memory) == size
            else _shortened_file_findings(view, part, len(memory))
        )
    try:
        if len(mapping.window) < size:
            return _shortened_file_findings(view, part, len(mapping.window))
        findings = _check_mapped_chains(view, part, mapping.window)
        # What was found in pages that were cut off meanwhile is no damage of their content.
        return _shortened_file_findings(view, part, os.fstat(descriptor).st_size) if mapping.was_truncated else findings
    finally:
        mapping.close()


def _shortened_file_findings(view: StoreView, part: IndexPart, size: int) -> Findings:
    """Return the only finding for an IndexFile that became shorter while it was checked."""
    findings = Findings(view.limit)
    expected = f"{part.geometry.file_size} bytes, as when it was opened"
    findings.add(Finding("index_file_size", part.name, found=f"{size} bytes", expected=expected))
    return findings


def _check_mapped_chains(view: StoreView, part: IndexPart, memory: Array) -> Findings:
    findings = Findings(view.limit)
    counts = np.zeros(index_chains.CHAIN_COUNTS, np.int64)
    first = np.zeros((len(_CHAIN_CODES), max(1, view.limit)), np.int64)
    references = np.zeros(part.last + 2, np.uint8)
    # Slots of this file may already lead to entries that were added after `last` was read.
    room = part.entries if view.is_live and part.is_newest else part.last + 1
    index_chains.check_chains(memory, part.slots, part.last, room, references, counts, first)
    for kind, code in _CHAIN_CODES.items():
        kept = first[kind, : min(int(counts[kind]), first.shape[1])].tolist()
        findings.add_many(code, int(counts[kind]), (_chain_finding(part, memory, kind, code, each) for each in kept))
    _check_header(part, int(counts[index_chains.USED_SLOTS]), is_live=view.is_live, findings=findings)
    return findings


def _chain_finding(part: IndexPart, memory: Array, kind: int, code: str, number: int) -> Finding:
    geometry = part.geometry
    if kind == index_chains.BAD_SLOT:
        position = geometry.slot_position(number)
        newest = int.from_bytes(memory[position : position + 4].tobytes(), "big", signed=True)
        return Finding(code, part.name, position, number=number, found=f"slot {number} leads to entry {newest}",
                       expected=f"0 to {part.last}")  # fmt: skip
    position = geometry.entry_position(number)
    key_hash, offset, _, previous = ENTRY.unpack(memory[position : position + ENTRY.size].tobytes())
    expected = {
        index_chains.EMPTY: f"an entry, as all up to {part.last}",
        index_chains.LOOP: f"an older entry, 0 to {number - 1}",
        index_chains.WRONG_CHAIN: "an entry of its own slot",
        index_chains.UNREACHABLE: "a slot or an entry that leads to it",
        index_chains.DISORDER: "an offset not before those of older entries",
    }[kind]
    return Finding(code, part.name, position, offset, number=number,
                   found=f"hash {key_hash}, before it entry {previous}", expected=expected)  # fmt: skip


def _check_header(part: IndexPart, used_slots: int, *, is_live: bool, findings: Findings) -> None:
    """Check the counts in an IndexFile's header, which may be out of date in the newest file."""
    claimed, header = part.claimed_entries, part.header
    may_be_stale = part.is_newest
    if claimed > part.last or (claimed < part.last and not may_be_stale) or claimed < 0:
        findings.add(
            Finding(
                "index_header_count",
                part.name,
                36,
                found=format_count(claimed, "entry", "entries"),
                expected=f"{part.last}",
            )
        )
    elif not is_live and (
        header.used_slots > used_slots or (header.used_slots < used_slots and claimed == part.last and not may_be_stale)
    ):
        findings.add(
            Finding(
                "index_header_slots",
                part.name,
                32,
                found=format_count(header.used_slots, "slot"),
                expected=f"{used_slots}",
            )
        )
