"""Merges small packs of one date and broker, and finds packs that no row refers to.

    1. write the merged pack; from now on its bodies are in two files
    2. wipe the bodies of erased messages in both: an erasure may have wiped the small packs while they were read
    3. delete the small packs

An erasure first records its messages, and then looks for the files that have their bodies. A merge first writes its
file, and then looks for recorded messages. So at least one of them wipes the merged pack.

If a merge is killed, both files remain, and any reader finds the bodies in one of them. The next merge continues at the
second step. Only packs that rows name are merged; others are deleted once they are old enough.

A killed run leaves packs without rows if the next run divides the log differently. Only packs of the archived part of
the log are examined, because a running archive writes packs only after the archived end. Only the column of references
is read, file by file.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow.compute as pc
import pyarrow.parquet as pq

from commitlake.connectors.lake.archive_commits import StoreProgress
from commitlake.connectors.lake.delta_log.file_actions import read_table_files
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.errors import PackError, PackStoreError
from commitlake.connectors.lake.packs.merged_packs import (
    MAX_MEMBERS,
    contains_range,
    read_merged_index,
    write_merged_pack,
)
from commitlake.connectors.lake.packs.names import PackFile, PackPlace, new_token, pack_name, parse_pack_name
from commitlake.connectors.lake.packs.pack_stores import PackStore
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner
from commitlake.schemas.tables.messages import BODY_REF, STORE_DATE

SMALL_BYTES = 4 << 20
"""Size from which a pack stays as it is: larger ones save no request, and an erasure rewrites whole files."""
_MERGED_BYTES = 32 << 20
Members = Mapping[str, PackPlace]
"""Places of packs by name."""
_PACK = f"{BODY_REF.name}.pack"
_LOOK_BACK = datetime.timedelta(days=30)


@dataclass(frozen=True, slots=True)
class PackBin:
    """Small packs (files of message bodies) to merge into one.

    Attributes:
        files: the files, in the order of the log; some may be merged packs.
        members: the packs in them.
    """

    files: Sequence[PackFile]
    members: Members

    @property
    def size(self) -> int:
        """Total size of the files in bytes."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class PackMerges:
    """Number and size of the packs that were merged, or that are planned to be merged.

    Attributes:
        merged: number of files that were merged.
        written: number of files that replaced them.
        bytes: size of the merged files.
        left: reasons why packs are left as they are.
    """

    merged: int = 0
    written: int = 0
    bytes: int = 0
    left: Sequence[str] = ()


def plan_pack_merges(
    store: PackStore,
    packs: Collection[PackFile],
    referenced_packs: Collection[str],
    progress: Mapping[str, StoreProgress],
) -> tuple[list[PackBin], PackMerges]:
    """Return the groups of small packs to merge, and the reasons why some packs are left as they are.

    Args:
        packs: all packs of `find_merge_candidates`.
        referenced_packs: the packs that rows name.
        progress: archived end of each store.
    """
    bins: list[PackBin] = []
    left: list[str] = []
    for files in _group_by_folder(packs).values():
        small = [file for file in files if _is_small_pack(file, progress)]
        if len(small) < 2:
            continue
        found: list[tuple[PackFile, Members]] = []
        for file in small:
            if not parse_pack_name(file.name).is_merged:
                if file.name in referenced_packs:
                    found.append((file, {file.name: PackPlace(file.name, 0, file.size)}))
                continue
            try:
                found.append((file, read_merged_index(store, file)))
            except PackStoreError:
                # A store that cannot be reached ends the run; a damaged pack only stays as it is.
                raise
            except PackError as error:
                left.append(f"{error}")
        bins += _fill_pack_bins(found)
    return bins, PackMerges(left=left)


def find_merge_candidates(packs: Collection[PackFile], progress: Mapping[str, StoreProgress]) -> list[PackFile]:
    """Return the packs of each folder (date and broker) that has several small packs, or leftovers of a merge."""
    return [
        file
        for files in _group_by_folder(packs).values()
        if sum(_is_small_pack(file, progress) for file in files) > 1 or any(_packs_covered_by_merged(files))
        for file in files
    ]


def _group_by_folder(packs: Collection[PackFile]) -> dict[str, list[PackFile]]:
    """Group packs by folder; packs without a date are left out, as a merge would delay their expiry."""
    folders: dict[str, list[PackFile]] = defaultdict(list)
    for file in packs:
        if file.store_date is not None:
            folders[file.name.rpartition("/")[0]].append(file)
    return folders


def _is_small_pack(file: PackFile, progress: Mapping[str, StoreProgress]) -> bool:
    return file.size < SMALL_BYTES and is_pack_archived(file, progress)


def _packs_covered_by_merged(files: Sequence[PackFile]) -> Iterator[tuple[PackFile, list[PackFile]]]:
    """Yield each merged pack with the other packs whose range of the log lies within its own."""
    parsed = [(file, parse_pack_name(file.name)) for file in files]
    for merged, name in parsed:
        if name.is_merged:
            inside = [file for file, other in parsed if file is not merged and contains_range(name, other)]
            if inside:
                yield merged, inside


def _fill_pack_bins(packs_with_members: Sequence[tuple[PackFile, Members]]) -> list[PackBin]:
    bins: list[tuple[list[PackFile], dict[str, PackPlace]]] = []
    size = 0
    for file, places in sorted(packs_with_members, key=lambda one: parse_pack_name(one[0].name).start):
        if not bins or size + file.size > _MERGED_BYTES or len(bins[-1][1]) + len(places) > MAX_MEMBERS:
            bins.append(([], {}))
            size = 0
        size += file.size
        files, members = bins[-1]
        files.append(file)
        for name, place in places.items():
            members.setdefault(name, place)  # two merged packs may have it, if two processes have merged
    return [PackBin(files, members) for files, members in bins if len(files) > 1]


def merge_packs(
    store: PackStore,
    bins: Sequence[PackBin],
    runner: Runner = HERE,
    advance: Callable[[int], None] = lambda _: None,
) -> PackMerges:
    """Write a merged pack for each group of small packs, which `delete_merged_packs` can then delete.

    Args:
        store: the store of the packs; it must be picklable.
        bins: from `plan_pack_merges`.
        advance: called with the number of bytes that were done.

    Raises:
        PackStoreError: if packs may not be written.
    """
    done = PackMerges()
    for number, error in runner.run(partial(_merge_bin, store), bins):
        advance(bins[number].size)
        if error:
            done = replace(done, left=[*done.left, error])
        else:
            done = replace(
                done,
                merged=done.merged + len(bins[number].files),
                written=done.written + 1,
                bytes=done.bytes + bins[number].size,
            )
    return done


def _merge_bin(store: PackStore, pack_bin: PackBin) -> str:
    """Write one merged pack; return why it cannot be written, such as a pack that another process has merged."""
    names = [parse_pack_name(file.name) for file in pack_bin.files]
    start, end = min(name.start for name in names), max(name.end for name in names)
    places = sorted(pack_bin.members.items(), key=lambda item: (item[1].file, item[1].offset))
    name = pack_name(names[0].store_date, names[0].broker, start, end, new_token(), is_merged=True)
    try:
        write_merged_pack(store, name, places)
    except PackStoreError:
        raise
    except PackError as error:
        return f"{error}"
    return ""


def delete_merged_packs(
    store: PackStore, packs: Collection[PackFile], wipe_bodies: Callable[[set[str]], Mapping[str, PackError]]
) -> list[str]:
    """Delete the packs that a merged pack replaces, after wiping the bodies of erased messages in all copies.

    Args:
        packs: all files of `find_merge_candidates`, as they are now.
        wipe_bodies: wipes the bodies of erased messages in all copies of packs, and returns the packs where that
            failed.

    Returns:
        Reasons why files were left.
    """
    superfluous: dict[str, set[str]] = {}  # of each file to delete: the packs in it
    left: list[str] = []
    for files in _group_by_folder(packs).values():
        members: dict[str, Members] = {}
        for merged, inside in _packs_covered_by_merged(files):
            for file in [merged, *inside]:
                if file.name not in members:
                    try:
                        is_merged = parse_pack_name(file.name).is_merged
                        members[file.name] = (
                            read_merged_index(store, file) if is_merged else {file.name: PackPlace(file.name)}
                        )
                    except PackStoreError:
                        raise
                    except PackError as error:
                        left.append(f"{error}")
                        members[file.name] = {}
            for file in inside:
                held = members[file.name].keys()
                # Two processes may have merged the same packs; without an order by name, both files would be deleted.
                is_twin = held == members[merged.name].keys() and file.name < merged.name  # of two, one stays
                if held and held <= members[merged.name].keys() and not is_twin:
                    superfluous[file.name] = set(held)
    if not superfluous:
        return left
    # Before anything is deleted, see the module's docstring.
    failed = wipe_bodies(set().union(*superfluous.values()))
    left += [f"{error}" for error in failed.values()]
    store.delete([file for file, held in superfluous.items() if not held & failed.keys()])
    return left


def find_orphan_packs(
    store: PackStore,
    lake: Lake,
    packs: Iterable[PackFile],
    progress: Mapping[str, StoreProgress],
    now: datetime.datetime,
    min_age: datetime.timedelta,
    age_range: datetime.timedelta = _LOOK_BACK,
) -> list[PackFile]:
    """Return packs that no row of the newest version of `messages` refers to.

    Args:
        lake: the lake with the rows.
        packs: all packs, listed after `progress` was read.
        progress: archived end of each store.
        now: current time.
        min_age: packs younger than this are not examined.
        age_range: packs older than `min_age` by more than this are not examined: an earlier call has seen them.
    """
    asked = [
        pack
        for pack in packs
        if datetime.timedelta() <= now - pack.modified - min_age <= age_range and is_pack_archived(pack, progress)
    ]
    named = read_referenced_packs(lake, {pack.store_date for pack in asked})
    return [pack for pack in asked if not _is_pack_referenced(store, pack, named)]


def _is_pack_referenced(store: PackStore, pack: PackFile, referenced_packs: Collection[str]) -> bool:
    if not parse_pack_name(pack.name).is_merged:
        return pack.name in referenced_packs
    try:
        return any(name in referenced_packs for name in read_merged_index(store, pack))
    except PackStoreError:
        raise
    except PackError:  # an audit reports it
        # Kept, because an index that cannot be read does not show what is in the pack.
        return True


def is_pack_archived(pack: PackFile, progress: Mapping[str, StoreProgress]) -> bool:
    """Return whether the log range of a pack is archived, so that no running archive can still be writing it."""
    parsed = parse_pack_name(pack.name)
    store = progress.get(parsed.broker)
    return store is not None and parsed.end <= store.end


def read_referenced_packs(lake: Lake, dates: set[datetime.date | None]) -> set[str]:
    """Return the names of the packs that rows of `messages` of the given dates refer to.

    A pack with a date is referred to only by rows of that date. A pack without one holds bodies of several dates, so
    rows of any date may refer to it.
    """
    texts = {None if date is None else date.isoformat() for date in dates}
    files = lake.open_folder("messages")
    found: set[str] = set()
    for file in read_table_files(lake.table("messages")) if texts else ():
        if None in texts or file.partition.get(STORE_DATE.name) in texts:
            with pq.ParquetFile(files.open_input_file(file.path), page_checksum_verification=True) as source:
                for batch in source.iter_batches(columns=[_PACK]):
                    names = pc.unique(pc.struct_field(batch.column(BODY_REF.name), "pack"))
                    found.update(name for name in names.to_pylist() if name is not None)
    return found
