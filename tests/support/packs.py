"""Packs for tests, written into memory from bodies as bytes."""

from __future__ import annotations

import datetime
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from commitlake.connectors.lake.packs.errors import PackError
from commitlake.connectors.lake.packs.frames import FRAME_BYTES, BodyRef, PackRefs
from commitlake.connectors.lake.packs.names import PackFile, pack_name, parse_pack_name
from commitlake.connectors.lake.packs.pack_stores import PackOutput, PackStore
from commitlake.connectors.lake.packs.writer import PackWriter
from commitlake.connectors.storage.folder_storage import FolderStorage

_LONG_AGO = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
TOKEN = "5f0c3a9e77d2b164"
NAME = pack_name(None, "broker-a", 0, 1 << 27, TOKEN)


def folder_store(root: str | os.PathLike[str]) -> PackStore:
    """Return the packs in a folder."""
    return PackStore(FolderStorage(root, may_be_link=True))


class MemoryStore(PackStore):
    """Packs in a dict, with counts of reads."""

    def __init__(self, **packs: bytes) -> None:
        self.merged_places = {}
        self.packs: dict[str, bytes] = dict(packs)
        self.reads: list[tuple[str, int, int]] = []

    @contextmanager
    def open_write(self, name: str) -> Iterator[PackOutput]:
        """See PackStore."""
        parse_pack_name(name)
        output = io.BytesIO()
        yield output
        self.packs[name] = output.getvalue()

    def read_range(self, name: str, offset: int, length: int) -> bytes:
        """See PackStore."""
        parse_pack_name(name)
        self.reads.append((name, offset, length))
        if name not in self.packs:
            raise PackError(name, None, "a pack", "none", "Write it")
        return self.packs[name][offset : offset + length]

    def size(self, name: str) -> int:
        """See PackStore."""
        return len(self.packs[name])

    def check_writable(self) -> None:
        """See PackStore."""

    def list_packs(self, folder: str = "") -> Iterator[PackFile]:
        """See PackStore."""
        for name, pack in sorted(self.packs.items()):
            if name.startswith(f"{folder}/" if folder else ""):
                yield PackFile(name, parse_pack_name(name).store_date, len(pack), _LONG_AGO)

    def delete(self, names: Iterable[str]) -> None:
        """See PackStore."""
        for name in names:
            self.packs.pop(name, None)

    def delete_unfinished_packs(self, older_than: datetime.datetime) -> int:  # noqa: ARG002 (nothing is ever unfinished here)
        """See PackStore."""
        return 0


def append(writer: PackWriter, bodies: Sequence[bytes]) -> None:
    """Append bodies as the archive does: in a window, with other bytes between them."""
    window = np.frombuffer(b"".join(b"HEAD" + body for body in bodies) + b"END", np.uint8)
    lengths = np.array([len(body) for body in bodies], np.int64)
    positions = np.cumsum(lengths + 4) - lengths
    writer.append_bodies(window, positions, lengths)


def packed(bodies: Sequence[bytes], frame_bytes: int = FRAME_BYTES, level: int = 1) -> tuple[bytes, PackRefs]:
    """Return a pack's bytes, and the positions of its bodies."""
    output = io.BytesIO()
    writer = PackWriter(output, frame_bytes, level)
    append(writer, bodies)
    refs = writer.finish()
    return output.getvalue(), refs


def stored(bodies: Sequence[bytes], frame_bytes: int = FRAME_BYTES) -> tuple[MemoryStore, PackRefs]:
    """Return a store with one pack, `NAME`, and the positions of its bodies."""
    store = MemoryStore()
    store.packs[NAME], refs = packed(bodies, frame_bytes)
    return store, refs


def ref_of(refs: PackRefs, row: int, **changes: int) -> BodyRef:
    """Return one row's reference, with some of its numbers changed."""
    numbers = {
        "frame_offset": int(refs.frame_offsets[row]),
        "frame_length": int(refs.frame_lengths[row]),
        "offset": int(refs.offsets[row]),
        "length": int(refs.lengths[row]),
    }
    return BodyRef(NAME, **(numbers | changes))


def decompressed(pack: bytes) -> bytes:
    """Return the content of a pack, as `zstd -d` gives it."""
    with pa.input_stream(pa.BufferReader(pack), compression="zstd") as stream:
        content: bytes = stream.read()
    return content
