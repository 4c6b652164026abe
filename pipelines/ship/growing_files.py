"""One file that grows: its new bytes become parts, and finally the parts become the sealed file.

New bytes are sent as soon as they are complete, often a few KiB at a time, and each part is an object. Small parts are
therefore merged: once there are enough parts of about the same size, a new part replaces them and contains their bytes,
which are sent again. Parts of at least `full_part_bytes` are full and are never sent again. The sealed file is made of
the parts by copies on the server.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from commitlake.connectors.checksums import crc_of_parts
from commitlake.connectors.shipping.ship_target import ShipTarget
from commitlake.pipelines.ship.settings import ShipSettings
from commitlake.pipelines.ship.source_store import SourceFile
from commitlake.schemas.errors import CommitLakeError
from commitlake.schemas.shipped_manifest import Manifest, Part, ShippedFile

HEAD_BYTES = 4096
"""Number of first bytes by which a file is recognised."""
_TAIL_BYTES = 4096
_SMALLEST_TIER_BYTES = 4096


class ChangedFileError(CommitLakeError):
    """Error because bytes in the store differ from those that were shipped."""


@dataclass(slots=True)
class ShippedCounts:
    """Numbers of bytes and files that an agent has shipped.

    Attributes:
        sent_bytes: bytes that were sent, with those that were sent again.
        new_bytes: bytes that are new in the target.
        sealed: files that were completed.
        rewritten: files whose shipped bytes the broker had changed.
        cut: files that are shorter than their size, or that disappeared before they were complete.
    """

    sent_bytes: int = 0
    new_bytes: int = 0
    sealed: int = 0
    rewritten: int = 0
    cut: int = 0


@dataclass(slots=True)
class GrowingFiles:
    """Updates files in the target that grow in the store; each method returns a file's new manifest entry.

    Attributes:
        target: the target.
        settings: the settings of the agent.
        counts: counts of the agent.
        dropped: parts that are to be deleted when the manifest is written.
    """

    target: ShipTarget
    settings: ShipSettings
    counts: ShippedCounts
    dropped: list[tuple[ShippedFile, Part]] = field(default_factory=list)
    _tails: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def ship_part(self, entry: ShippedFile, source: SourceFile, end: int, *, is_live: bool) -> ShippedFile:
        """Ship a file's bytes from what was shipped before up to a position, as one part.

        Args:
            source: the open file of the store.
            end: position after the last byte to ship.
            is_live: whether the broker can still write to the file.

        Raises:
            ChangedFileError: if bytes that are shipped have changed.
        """
        kept = select_parts_to_keep(entry.parts, end, self.settings)
        replaced = entry.parts[len(kept) :]
        start = kept[-1].end if kept else 0
        # Read from the store again, together with the replaced parts: nothing is downloaded.
        data = source.read_range(start, end - start)
        old_size = entry.shipped_bytes - start
        # The same bytes as shipped, or the new part would mix two states of the file.
        if zlib.crc32(data[:old_size]) != crc_of_parts(replaced):
            raise ChangedFileError
        if len(data) <= old_size:
            return entry
        part = Part(start, len(data), zlib.crc32(data), is_live or any(old.is_live for old in replaced))
        self.target.write_part(entry, part, data)
        self.counts.sent_bytes += len(data)
        self.counts.new_bytes += len(data) - old_size
        # Deleted only after a manifest without them has been written, because readers may still use the old one.
        self.dropped += [(entry, old) for old in replaced]
        tail = data[-_TAIL_BYTES:]
        self._tails[entry.name] = part.end - len(tail), len(tail), zlib.crc32(tail)
        return set_head_checksum(replace(entry, parts=(*kept, part)), data)

    def seal_file(self, entry: ShippedFile, source: SourceFile | None) -> ShippedFile:
        """Mark a file in the target as complete, after merging its small parts.

        Raises:
            ChangedFileError: if bytes that are shipped have changed.
        """
        if source is not None:
            # Parts of a live file were read while the broker wrote it; this is the last look at them.
            if any(part.is_live and source.compute_crc(part.offset, part.size) != part.crc for part in entry.parts):
                raise ChangedFileError
            entry = self._merge_small_parts(entry, source)
        self.target.seal(entry)
        self.counts.sealed += 1
        self.dropped += [(entry, part) for part in entry.parts]
        self._tails.pop(entry.name, None)
        return replace(entry, parts=(), is_sealed=True, crc=crc_of_parts(entry.parts))

    def is_changed(self, entry: ShippedFile, source: SourceFile, *, checks_every_part: bool = False) -> bool:
        """Return whether the store has changed bytes that were shipped before.

        Args:
            source: the open file of the store.
            checks_every_part: compare every part on the first call, and not only the last one.
        """
        tail = self._tails.get(entry.name)
        if tail is not None:
            offset, size, crc = tail
            return source.compute_crc(offset, size) != crc
        # The last part is where a broker writes; a restarted broker may also have truncated more.
        parts = entry.parts if checks_every_part else entry.parts[-1:]
        if any(source.compute_crc(part.offset, part.size) != part.crc for part in parts):
            return True
        if parts:
            size = min(_TAIL_BYTES, entry.shipped_bytes)
            self._tails[entry.name] = (
                entry.shipped_bytes - size,
                size,
                source.compute_crc(entry.shipped_bytes - size, size) or 0,
            )
        return False

    def drop_changed_parts(self, entry: ShippedFile, source: SourceFile) -> ShippedFile:
        """Drop the first part whose bytes in the store have changed, and all later parts."""
        kept: list[Part] = []
        for part in entry.parts:
            if source.compute_crc(part.offset, part.size) != part.crc:
                break
            kept.append(part)
        self.counts.rewritten += 1
        # The checksum of the first bytes belongs to the old content.
        if not kept:
            entry = replace(entry, head_size=0, head_crc=0)
        return self._drop_parts(entry, kept)

    def delete_file(self, entry: ShippedFile) -> None:
        """Delete a file that the broker has replaced; its parts are deleted once no manifest names them."""
        if entry.is_sealed or not self.target.has_parts:
            self.target.delete(entry.name)
        self._tails.pop(entry.name, None)
        self.dropped += [(entry, part) for part in entry.parts]
        self.counts.rewritten += 1

    def drop_missing_parts(self, entry: ShippedFile) -> ShippedFile:
        """Remove from an entry the first part that the target lacks or has in another size, and all later ones."""
        kept: list[Part] = []
        for part in entry.parts:
            if not self.target.has_part(entry, part):
                break
            kept.append(part)
        return entry if len(kept) == len(entry.parts) else self._drop_parts(entry, kept)

    def delete_dropped_parts(self, *manifests: Manifest) -> None:
        """Delete from the target the dropped parts that none of the given manifests names."""
        kept = []
        for entry, part in self.dropped:
            named = (manifest.files[entry.name].parts for manifest in manifests if entry.name in manifest.files)
            if any(_part_range_and_crc(part) == _part_range_and_crc(other) for parts in named for other in parts):
                kept.append((entry, part))
            else:
                self.target.drop_parts(entry, [part])
        self.dropped = kept

    def _drop_parts(self, entry: ShippedFile, parts_to_keep: Sequence[Part]) -> ShippedFile:
        self._tails.pop(entry.name, None)
        self.dropped += [(entry, part) for part in entry.parts[len(parts_to_keep) :]]
        self.target.truncate(entry, parts_to_keep[-1].end if parts_to_keep else 0)
        return replace(entry, parts=tuple(parts_to_keep))

    def _merge_small_parts(self, entry: ShippedFile, source: SourceFile) -> ShippedFile:
        """Merge the small parts at the end of a file into one."""
        kept = _select_full_parts(entry.parts, self.settings)
        small = entry.parts[len(kept) :]
        if len(small) < 2 or not self.target.has_parts:
            return entry
        data = source.read_range(small[0].offset, small[-1].end - small[0].offset)
        part = Part(small[0].offset, len(data), zlib.crc32(data), is_live=True)
        if part.end != small[-1].end or part.crc != crc_of_parts(small):
            raise ChangedFileError
        self.target.write_part(entry, part, data)
        self.counts.sent_bytes += len(data)
        self.dropped += [(entry, old) for old in small]
        return replace(entry, parts=(*kept, part))


def select_parts_to_keep(parts: Sequence[Part], end: int, settings: ShipSettings) -> tuple[Part, ...]:
    """Return the parts of a file to keep when its next part is shipped, into which the other parts are merged.

    Args:
        parts: the present parts of a file.
        end: position at which the next part ends.
        settings: the settings of the agent.
    """
    full = _select_full_parts(parts, settings)
    shipped = parts[-1].end if parts else 0
    begin = full[-1].end if full else 0
    if end - begin >= settings.full_part_bytes:
        return tuple(full)
    # Parts of the new size and smaller are merged, so that each byte is sent again only once for each tier.
    tier = _size_tier(end - shipped)
    equal = 0
    for part in reversed(parts[len(full) :]):
        if _size_tier(part.size) > tier:
            break
        equal += 1
    return tuple(parts if equal + 1 < settings.merged_count else parts[: len(parts) - equal])


def set_head_checksum(entry: ShippedFile, data: bytes) -> ShippedFile:
    """Return the manifest entry with a checksum of the file's first bytes, if `data` is its only part."""
    size = min(HEAD_BYTES, entry.shipped_bytes)
    if size <= entry.head_size or entry.parts[0].size != len(data) or len(entry.parts) > 1:
        return entry
    return replace(entry, head_size=size, head_crc=zlib.crc32(data[:size]))


def _select_full_parts(parts: Sequence[Part], settings: ShipSettings) -> Sequence[Part]:
    count = len(parts)
    while count and parts[count - 1].size < settings.full_part_bytes:
        count -= 1
    return parts[:count]


def _size_tier(size: int) -> int:
    """Return the size class of a part, on a scale where each class is eight times the one before."""
    return max(0, (max(size, 1) // _SMALLEST_TIER_BYTES).bit_length() + 2) // 3


def _part_range_and_crc(part: Part) -> tuple[int, int, int]:
    return part.offset, part.size, part.crc
