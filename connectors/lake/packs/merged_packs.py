"""Merged packs: files that each contain many small packs, which are still found by their own names.

References do not change, wherever they are: in rows, in their copies in HBase, in the ledgers of replays. A reader that
finds no file of a pack's name looks for it in the merged packs of the same date and broker whose range covers its own.

    merged pack = pack* index
    index       = skippable frame (RFC 8878, 3.1.2) of zlib(JSON), the two sizes of that as uint32, and "CLMP"
    JSON        = [[START-END-TOKEN, size], ...], the joined packs in order

So `zstd -d` still returns all bodies, joined. A merged pack holds each pack once, and never another merged pack: those
that are merged again are taken apart.

While packs are merged, a body may be in several files. `find_pack_copies` returns all of them, so that none survives an
erasure.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from commitlake.connectors.lake.packs.errors import PackError, PackNameError, PackStoreError
from commitlake.connectors.lake.packs.names import PackFile, PackName, PackPlace, parse_pack_name
from commitlake.connectors.lake.packs.pack_stores import PackStore

MAX_MEMBERS = 4096
"""Largest number of packs in a merged one."""
SKIPPABLE = struct.Struct("<II")
"""Header of a frame that zstd skips: `SKIPPABLE_MAGIC`, and the number of bytes that follow."""
SKIPPABLE_MAGIC = 0x184D2A50
_FOOTER = struct.Struct("<II4s")
_FOOTER_MAGIC = b"CLMP"
_TAIL_BYTES = 64 << 10
_MAX_INDEX_BYTES = 256 * MAX_MEMBERS
_COPY_BYTES = 8 << 20
_MAX_KNOWN = 1 << 16
_TRIES = 3  # while a pack is looked up, it may be merged, and merged again
_DAMAGED = "Restore the merged pack from a backup of the lake"
_Answer = TypeVar("_Answer")


def read_merged_index(store: PackStore, file: PackFile) -> dict[str, PackPlace]:
    """Return the positions of all packs in a merged pack, by their names.

    Raises:
        PackError: if the file cannot be read, or is not a merged pack.
    """
    tail = store.read_range(file.name, max(0, file.size - _TAIL_BYTES), _TAIL_BYTES)
    packed, plain, magic = _FOOTER.unpack(tail[-_FOOTER.size :]) if len(tail) >= _FOOTER.size else (0, 0, b"")
    frame = SKIPPABLE.size + packed + _FOOTER.size
    if magic != _FOOTER_MAGIC or frame > file.size or max(packed, plain) > _MAX_INDEX_BYTES:
        raise _damaged_error(file, bytes(tail[-_FOOTER.size :]).hex(" ") or "nothing")
    if frame > len(tail):
        # Most indexes are within the first read; one with many packs needs a second.
        tail = store.read_range(file.name, file.size - frame, frame)
    folder, places, offset = file.name.rpartition("/")[0], {}, 0
    try:
        stored = tail[len(tail) - frame + SKIPPABLE.size : -_FOOTER.size]
        listed = json.loads(zlib.decompressobj().decompress(stored, plain))
        for stem, size in listed:
            name = f"{folder}/{stem}.zst"
            # The index is data from a file: a name in it is checked like any other, and must not be a merged pack
            # again.
            if parse_pack_name(name).is_merged or not isinstance(size, int) or size < 0:
                raise ValueError(name)  # noqa: TRY301 (reported like other damage)
            places[name] = PackPlace(file.name, offset, size)
            offset += size
    except (zlib.error, ValueError, TypeError, PackError) as error:
        raise _damaged_error(file, f"an index that cannot be read: {error}") from None
    # The sizes must fill the file exactly, or a body would be read from a wrong place.
    if offset + frame != file.size:
        raise _damaged_error(file, f"an index of {offset + frame} bytes, in a file of {file.size}")
    return places


def _damaged_error(file: PackFile, found: str) -> PackError:
    return PackError(file.name, None, "an index at the end of a merged pack", found, _DAMAGED)


def write_merged_pack(store: PackStore, name: str, pack_places: Sequence[tuple[str, PackPlace]]) -> int:
    """Write the content of the given packs to one merged pack, and return its size.

    Args:
        name: name of the merged pack.
        pack_places: name, and place with its size, of each pack that it will hold, in order.

    Returns:
        The size of the file.

    Raises:
        PackError: if a pack cannot be read as a whole, or the file cannot be written.
    """
    listed = [[pack.rpartition("/")[2].removesuffix(".zst"), place.size] for pack, place in pack_places]
    plain = json.dumps(listed, separators=(",", ":")).encode()
    packed = zlib.compress(plain)
    footer = packed + _FOOTER.pack(len(packed), len(plain), _FOOTER_MAGIC)
    index = SKIPPABLE.pack(SKIPPABLE_MAGIC, len(footer)) + footer
    total = len(index)
    with store.open_write(name) as output:
        for run in _join_adjacent_places([place for _, place in pack_places]):
            assert run.size is not None  # of `places`
            end = run.offset + run.size
            for offset in range(run.offset, end, _COPY_BYTES):
                wanted = min(_COPY_BYTES, end - offset)
                data = store.read_range(run.file, offset, wanted)
                if len(data) != wanted:
                    # The file was merged again or rewritten since it was looked up.
                    raise PackError(run.file, offset, f"{wanted} bytes", f"{len(data)}", "Run it again")
                output.write(memoryview(data))
            total += run.size
        output.write(memoryview(index))
    return total


def _join_adjacent_places(pack_places: Sequence[PackPlace]) -> Iterator[PackPlace]:
    """Yield the byte ranges of packs, with adjacent ranges of the same file joined to one."""
    run: PackPlace | None = None
    for place in pack_places:
        if run is not None and (run.file, run.offset + (run.size or 0)) == (place.file, place.offset):
            run = PackPlace(run.file, run.offset, (run.size or 0) + (place.size or 0))
            continue
        if run is not None:
            yield run
        run = place
    if run is not None:
        yield run


@dataclass(frozen=True, slots=True)
class PackCopies:
    """All byte ranges where a pack is stored in the lake, and an error if some files could not be searched.

    Attributes:
        places: its own file, and parts of merged packs; none if it does not exist.
        error: why it, or a merged pack that may hold it, cannot be looked for; None if everything was.
    """

    places: Sequence[PackPlace] = ()
    error: PackError | None = None


def find_pack_copies(
    store: PackStore, pack_names: Iterable[str], found_places: MutableMapping[str, PackPlace] | None = None
) -> dict[str, PackCopies]:
    """Return all byte ranges where packs are stored, alone or in merged packs, by the packs' names.

    Args:
        pack_names: names of the packs.
        found_places: receives the places of all packs in the merged packs that are read; None if they are not wanted.

    Raises:
        PackStoreError: if packs cannot be listed.
    """
    by_folder: dict[str, list[str]] = defaultdict(list)
    found: dict[str, PackCopies] = {}
    for name in pack_names:
        try:
            parse_pack_name(name)  # before it becomes a part of a path
        except PackNameError as error:
            found[name] = PackCopies(error=error)
        else:
            by_folder[name.rpartition("/")[0]].append(name)
    for folder, wanted in by_folder.items():
        found |= _find_pack_copies_in_folder(store, folder, wanted, {} if found_places is None else found_places)
    return found


def _find_pack_copies_in_folder(
    store: PackStore, folder: str, pack_names: Sequence[str], found_places: MutableMapping[str, PackPlace]
) -> dict[str, PackCopies]:
    for _ in range(_TRIES):
        files = list(store.list_packs(folder))
        own = {file.name: PackPlace(file.name, 0, file.size) for file in files}
        found = {name: PackCopies([own[name]] if name in own else []) for name in pack_names}
        try:
            for file in files:
                held = parse_pack_name(file.name)
                covered = [
                    name for name in pack_names if held.is_merged and contains_range(held, parse_pack_name(name))
                ]
                if covered:
                    found_places.update(_add_places_in_merged_pack(store, file, covered, found))
        # Between the listing and the read, `maintain` may have merged this file into another and deleted it.
        except PackError as error:
            if error.found != "none":
                raise
            gone = error  # it was merged again since it was listed
        else:
            return found
    raise gone


def _add_places_in_merged_pack(
    store: PackStore, file: PackFile, pack_names: Sequence[str], found_copies: dict[str, PackCopies]
) -> dict[str, PackPlace]:
    """Add the wanted packs that a merged pack contains to `found_copies`; return the positions of all its packs."""
    try:
        members = read_merged_index(store, file)
    except PackStoreError:
        raise
    except PackError as error:
        if error.found == "none":
            raise
        for name in pack_names:
            found_copies[name] = replace(found_copies[name], error=error)
        return {}
    for name in pack_names:
        if name in members:
            found_copies[name] = replace(found_copies[name], places=[*found_copies[name].places, members[name]])
    return members


def contains_range(merged_pack: PackName, pack: PackName) -> bool:
    """Return whether the range of offsets of a merged pack contains that of a pack of the same date and broker."""
    return merged_pack.start <= pack.start and pack.end <= merged_pack.end


def read_pack_range(store: PackStore, pack_name: str, offset: int, length: int) -> bytes:
    """Read a range of a pack, which may be a file of its own or a part of a merged pack."""

    def read_range_at_place(place: PackPlace) -> bytes:
        wanted = length if place.size is None else max(0, min(length, place.size - offset))
        return store.read_range(place.file, place.offset + offset, wanted)

    return _read_from_any_place(store, pack_name, read_range_at_place)


def pack_size(store: PackStore, pack_name: str) -> int:
    """Return the size in bytes of a pack, which may be a file of its own or a part of a merged pack."""
    return _read_from_any_place(
        store, pack_name, lambda place: store.size(place.file) if place.size is None else place.size
    )


def _read_from_any_place(store: PackStore, pack_name: str, read_place: Callable[[PackPlace], _Answer]) -> _Answer:
    known = store.merged_places
    for _ in range(_TRIES):
        # The last known place first, because a merged pack serves many bodies in a row.
        place = known.get(pack_name) or PackPlace(pack_name)
        try:
            return read_place(place)
        except PackError as error:
            if error.found != "none":
                raise
            missing = error
        # Cleared as a whole: it is only a memory of look-ups, and is filled again in no time.
        if len(known) >= _MAX_KNOWN:
            known.clear()
        known.pop(pack_name, None)
        copies = find_pack_copies(store, [pack_name], known)[pack_name]
        if not copies.places:
            raise copies.error or missing
        # A pack's own file is what is tried for unknown names, so it needs no entry.
        if copies.places[0].file == pack_name:
            known.pop(pack_name, None)
    raise missing
