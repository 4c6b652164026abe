"""Erases the bodies of messages in their packs.

A pack is rewritten as a whole, without any of its erased bodies, whichever erasure they belong to. Two concurrent runs
on the same pack could each write back what the other has erased. Each therefore checks the pack again after writing,
until nothing is left to erase. A pack that cannot be read or written does not stop the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.body_erasure import WipeResult, wipe_bodies
from commitlake.connectors.lake.packs.errors import PackError, PackStoreError
from commitlake.connectors.lake.packs.frames import PackRefs, join_pack_refs
from commitlake.connectors.lake.packs.location import PackLocation
from commitlake.connectors.lake.packs.merged_packs import PackCopies, find_pack_copies, pack_size
from commitlake.connectors.lake.packs.pack_stores import PackStore, open_pack_store
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.erasure.ledger import read_erasure_rows
from commitlake.schemas.errors import ConcurrentRunError
from commitlake.schemas.tables.messages import BODY_PLACE

_MAX_TRIES = 20


@dataclass(frozen=True, slots=True)
class BodiesOfPack:
    """References to bodies in one pack, to be erased.

    Attributes:
        pack: name of the pack.
        refs: references to the bodies.
    """

    pack: str
    refs: PackRefs


@dataclass(frozen=True, slots=True)
class PackErasureCounts:
    """Numbers and sizes of packs and bodies that an erasure has overwritten, or would overwrite.

    Attributes:
        packs: number of packs that were rewritten.
        bodies: number of bodies that were overwritten in them.
        body_bytes: size of these bodies.
        rewritten_bytes: size of the packs.
        gone: number of packs that no longer exist, because they have expired.
    """

    packs: int = 0
    bodies: int = 0
    body_bytes: int = 0
    rewritten_bytes: int = 0
    gone: int = 0

    def add_wipe_result(self, wipe_result: WipeResult) -> PackErasureCounts:
        """Return this work plus the work on one more pack."""
        return replace(
            self,
            packs=self.packs + bool(wipe_result.rewritten_bytes),
            bodies=self.bodies + wipe_result.bodies,
            body_bytes=self.body_bytes + wipe_result.bytes,
            rewritten_bytes=self.rewritten_bytes + wipe_result.rewritten_bytes,
        )


def bodies_by_pack(rows: pa.Table) -> list[BodiesOfPack]:
    """Return references to the bodies of the given rows, grouped by pack.

    Args:
        rows: rows with `body_ref`, of `messages` or of `erasures`.
    """
    rows = rows.select(["body_ref"]).combine_chunks()
    rows = rows.filter(pc.is_valid(rows.column("body_ref"))).combine_chunks()
    if not rows.num_rows:
        return []
    places = {name: pc.struct_field(rows.column("body_ref"), name).combine_chunks() for name in BODY_PLACE.names}
    packs = places["pack"].cast(pa.string())
    found = []
    for pack in sorted(pc.unique(packs).to_pylist()):
        chosen = np.flatnonzero(pc.equal(packs, pack).to_numpy(zero_copy_only=False))
        numbers = [
            places[name].to_numpy().astype(np.int64)[chosen]
            for name in ("frame_offset", "frame_length", "offset", "length")
        ]
        found.append(BodiesOfPack(pack, PackRefs(*numbers)))
    return found


@dataclass(frozen=True, slots=True)
class _BodiesOfPackFile:
    """Bodies to erase in one file, which holds one pack or several merged ones."""

    file: str
    refs: PackRefs
    packs: Sequence[str]


def _group_by_file(
    store: PackStore, bodies: Sequence[BodiesOfPack]
) -> tuple[list[_BodiesOfPackFile], dict[str, PackCopies]]:
    """Group bodies by the files that hold their packs, including all copies of a pack.

    Also return the copies of each pack.
    """
    copies = find_pack_copies(store, [one.pack for one in bodies])
    parts: dict[str, list[tuple[str, PackRefs]]] = defaultdict(list)
    for one in bodies:
        for place in copies[one.pack].places:
            parts[place.file].append((one.pack, replace(one.refs, frame_offsets=one.refs.frame_offsets + place.offset)))
    return [
        _BodiesOfPackFile(file, join_pack_refs([refs for _, refs in found]), [pack for pack, _ in found])
        for file, found in sorted(parts.items())
    ], copies


def measure_pack_erasure(bodies: Sequence[BodiesOfPack], location: PackLocation) -> PackErasureCounts:
    """Return how many bodies and bytes in packs an erasure of the given bodies would overwrite.

    Raises:
        PackError: if a pack does not exist.
    """
    store = open_pack_store(location)
    with_bytes = [one for one in bodies if one.refs.lengths.any()]
    files, copies = _group_by_file(store, with_bytes)
    for pack, found in copies.items():
        if not found.places:
            pack_size(store, pack)  # reports what is missing
    work = PackErasureCounts()
    for one in files:
        wiped = WipeResult(int((one.refs.lengths > 0).sum()), int(one.refs.lengths.sum()), store.size(one.file))
        work = work.add_wipe_result(wiped)
    return work


def erase_bodies(lake: Lake, packs: set[str], runner: Runner = HERE) -> tuple[PackErasureCounts, dict[str, PackError]]:
    """Erase the bodies of all erased messages in the given packs, in all copies of them.

    Args:
        packs: names of the packs.

    Returns:
        The work, and the packs that could not be read or written, with their errors.

    Raises:
        PackStoreError: if the location of the packs cannot be used.
        ConcurrentRunError: if other processes write the same packs on every attempt.
    """
    work = PackErasureCounts()
    errors: dict[str, PackError] = {}
    store = open_pack_store(lake.packs)
    for attempt in range(_MAX_TRIES):
        bodies = [one for one in bodies_by_pack(read_erasure_rows(lake)) if one.pack in packs]
        files, copies = _group_by_file(store, bodies)
        errors |= {pack: found.error for pack, found in copies.items() if found.error is not None}
        if not attempt:
            gone = sum(not found.places and found.error is None for found in copies.values())
            work = replace(work, gone=gone)
        packs = set()
        for number, wiped in runner.run(partial(_wipe_bodies_in_file, lake.packs), files):
            if isinstance(wiped, PackError):
                errors |= dict.fromkeys(files[number].packs, wiped)
                continue
            work = work.add_wipe_result(wiped)
            if wiped.rewritten_bytes or wiped.is_gone:  # look again: it may have been merged meanwhile
                packs.update(files[number].packs)
        if not packs:
            return work, errors
    raise ConcurrentRunError(
        f"another process wrote the same packs first at each of {_MAX_TRIES} attempts. Run the command again"
    )


def _wipe_bodies_in_file(location: PackLocation, bodies: _BodiesOfPackFile) -> WipeResult | PackError:
    try:
        return wipe_bodies(open_pack_store(location), bodies.file, bodies.refs)
    except PackStoreError:
        raise
    except PackError as error:
        return error


def packs_of_erasures(rows: pa.Table) -> set[str]:
    """Return the names of the packs with bodies of the erased messages in the given rows of `erasures`."""
    names = pc.unique(pc.struct_field(rows.column("body_ref").combine_chunks(), "pack")).to_pylist()
    return {name for name in names if name is not None}
