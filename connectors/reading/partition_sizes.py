"""Division of files into parts for tasks: how large a part is, and how small parts are grouped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

MIN_PART_BYTES = 64 << 20
_MAX_PART_BYTES = 256 << 20
_OPENING_BYTES = 256 << 10  # opening a file costs as much as reading this
_MAX_PARTS = 1024  # within segments; beyond that, a cluster has enough tasks without further cuts


class FilePart(Protocol):
    """Part of a file, of known size, that one task reads."""

    @property
    def size(self) -> int:
        """Number of bytes that are read."""


_T = TypeVar("_T")


def choose_part_size(total_size: int, cores: int, *, multiple_of: int = 1 << 20, min_size: int = MIN_PART_BYTES) -> int:
    """Return a size for parts of a log such that each core gets two parts, within a minimum and a maximum.

    To cut a segment, the planner reads some MiB of it. Parts of large logs are therefore larger: those of a log of more
    than 1 TiB are whole segments of 1 GiB, and nothing is read to plan them.

    Args:
        total_size: size of the log in bytes.
        cores: number of tasks that run at a time.
        multiple_of: the result is a multiple of this number of bytes.
        min_size: smallest result in bytes; a multiple of `multiple_of`.

    >>> [choose_part_size(gib << 30, cores=16) >> 20 for gib in (1, 4, 100, 2000)]
    [64, 128, 256, 2000]
    """
    most = max(_MAX_PART_BYTES, total_size // _MAX_PARTS)
    wanted = min(-(-total_size // (2 * cores)), most)
    # Two parts for each core, so that a core that is done early takes another.
    return max(-(-wanted // multiple_of) * multiple_of, min_size)


def compute_read_costs(parts: Iterable[FilePart]) -> list[int]:
    """Return the cost of reading each part, including its opening, as the number of bytes that take the same time."""
    return [part.size + _OPENING_BYTES for part in parts]


def group_by_size(
    items: Iterable[_T], sizes: Iterable[int], max_group_size: int, max_group_items: int | None = None
) -> list[list[_T]]:
    """Group items, in order, so that each group is the work of one task.

    Args:
        items: parts of files, or tasks.
        sizes: size or cost of each item.
        max_group_size: largest sum of the sizes in a group; that of a single item may be larger.
        max_group_items: largest number of items in a group; None for no limit.
    """
    groups: list[list[_T]] = []
    room = 0
    for item, size in zip(items, sizes, strict=True):
        # An item that is larger than a group gets its own, and the next item starts a new one.
        if not groups or size > room or len(groups[-1]) == max_group_items:
            groups.append([])
            room = max_group_size
        groups[-1].append(item)
        room -= size
    return groups
