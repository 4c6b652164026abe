"""Ways to damage the IndexFiles of a store."""

from __future__ import annotations

from pathlib import Path

from commitlake.schemas.layouts.rocketmq import indexfile
from tests.support.store_damages import patch


def index_paths(root: Path) -> list[Path]:
    """Return the index files, oldest first."""
    return sorted((root / "index").iterdir())


def index_entry(path: Path, number: int) -> indexfile.IndexFileEntry:
    """Return an entry of an index file."""
    return indexfile.parse_entry(path.read_bytes(), indexfile.geometry_of(path.stat().st_size).entry_position(number))


def put_index_entry(path: Path, number: int, value: indexfile.IndexFileEntry) -> None:
    """Overwrite an entry of an index file."""
    position = indexfile.geometry_of(path.stat().st_size).entry_position(number)
    patch(path, position, indexfile.serialize_entry(value))


def index_header(path: Path) -> indexfile.Header:
    """Return the header of an index file."""
    return indexfile.parse_header(path.read_bytes())


def put_index_header(path: Path, value: indexfile.Header) -> None:
    """Overwrite the header of an index file."""
    patch(path, 0, indexfile.serialize_header(value))


def chained(path: Path, *, at_end: bool) -> int:
    """Return the number of an entry within a chain, or at its end, that is not the newest one of its slot."""
    geometry = indexfile.geometry_of(path.stat().st_size)
    entries = {number: index_entry(path, number) for number in range(2, geometry.entries)}
    led_to = {each.previous_entry for each in entries.values()}
    return next(number for number, each in entries.items() if number in led_to and (each.previous_entry == 0) is at_end)


def swap_slots(root: Path) -> None:
    """Exchange two slots of an index file."""
    path = index_paths(root)[1]
    geometry = indexfile.geometry_of(path.stat().st_size)
    content = path.read_bytes()
    size = indexfile.SLOT.size
    used = [slot for slot in range(geometry.slots) if any(content[geometry.slot_position(slot) :][:size])][:2]
    first, second = (geometry.slot_position(slot) for slot in used)
    patch(path, first, content[second : second + size])
    patch(path, second, content[first : first + size])
