"""The sentences that end an archive run."""

from __future__ import annotations

from collections.abc import Mapping

from connectors.commitlog.plan import StoreRange, TailKind

_MANY_STORES = 12


def size_text(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def store_lines(ranges: Mapping[str, StoreRange]) -> list[str]:
    """A line for each store that gave something or has a torn end; of many stores, the first ones."""
    told = {name: part for name, part in ranges.items() if part.size or part.tail is TailKind.TORN}
    lines = [_store_line(name, part) for name, part in list(told.items())[:_MANY_STORES]]
    if len(told) > _MANY_STORES:
        lines.append(f"  and {len(told) - _MANY_STORES} more stores")
    return lines


def _store_line(name: str, part: StoreRange) -> str:
    line = f"  {name}: {part.start} to {part.end} ({size_text(part.size)})"
    if part.tail is TailKind.TORN:
        line += f"; {part.tail_bytes} bytes behind it are a torn end, left for the next run"
    return line
