"""Ways to damage the files of a table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def _flip(data: bytes) -> bytes:
    """Change a letter of a word, so that JSON stays valid."""
    place = next(place for place in range(len(data) // 3, len(data)) if data[place : place + 1].isalpha())
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "deleted": lambda _: None,
    "empty": lambda _: b"",
    "cut": lambda data: data[: len(data) // 2],
    "cut at the end of a line": lambda data: data.splitlines(keepends=True)[0],
    "zeroed": lambda data: bytes(len(data)),
    "flipped": _flip,
}


def damage(path: Path, how: str) -> None:
    """Damage a file."""
    data = DAMAGES[how](path.read_bytes())
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)
