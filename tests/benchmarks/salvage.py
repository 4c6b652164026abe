"""Records of a log that survive damage: faults at random places, and every record that none of them hit must be read.

    python -m tests.benchmarks.salvage --gib 1 --faults 1000
    python -m tests.benchmarks.salvage --gib 1 --faults 1000 --brokers

With --brokers, a real broker is started on the damaged log, and another on the salvaged one, and all messages are
pulled from both. Faults are those of disks and copies: a flipped bit, a stretch of zeros, of other bytes, of the log's
own bytes from elsewhere, sectors of 512 bytes and pages of 4 KiB. A record is hit if any of its bytes has changed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.batches import read_split
from commitlake.connectors.reading.options import Mode
from commitlake.connectors.reading.read_request import Request
from commitlake.connectors.reading.snapshots import plan_splits, take_snapshot
from commitlake.connectors.reading.stores import find_stores
from commitlake.schemas.tables.messages import CORRUPT_RECORD, SOURCE
from tests.benchmarks.salvage_brokers import Served, serve
from tests.support.corpus import make_corpora

_SCHEMA = SOURCE.select_columns(["physical_offset", "size", CORRUPT_RECORD.name])
_PARTITION = 32 << 20


@dataclass(frozen=True, slots=True)
class Salvage:
    """Result of a salvage.

    Attributes:
        faults: number of faults.
        records: number of records of the undamaged log.
        hit: number of records that a fault touched.
        read: number of untouched records that were read.
        wrong: number of rows for positions at which no record began.
        quarantined: number of bad ranges that were reported.
        served: records that brokers serve; None if no broker was started.
    """

    faults: int
    records: int
    hit: int
    read: int
    wrong: int
    quarantined: int
    served: Served | None = None

    @property
    def share(self) -> float:
        """Return the share of the intact records that were read."""
        return self.read / (self.records - self.hit)


@dataclass(frozen=True, slots=True)
class Found:
    """Records read from a store.

    Attributes:
        starts: int64, physical offsets of the records, in order.
        sizes: int32, sizes of the records.
        bad_ranges: number of bad ranges that were reported.
    """

    starts: Array
    sizes: Array
    bad_ranges: int


def damage_store(store: Path, faults: int, seed: int) -> list[tuple[int, int]]:
    """Damage a store's segments in place, and return the changed ranges in physical offsets."""
    chance = random.Random(seed)
    segments = sorted((store / "commitlog").iterdir())
    changed = []
    for _ in range(faults):
        segment = chance.choice(segments)
        with segment.open("r+b") as file:
            size = segment.stat().st_size
            place = chance.randrange(size - 8192)
            file.seek(place)
            data = _fault(chance, file.read(8192))
            file.seek(place)
            file.write(data)
        changed.append((int(segment.name) + place, int(segment.name) + place + len(data)))
    return changed


def _fault(chance: random.Random, there: bytes) -> bytes:
    """Return bytes that overwrite the existing ones."""
    length = chance.choice([1, 1, 1, 4, 64, 512, 4096])
    match chance.randrange(4):
        case 0:
            return bytes([there[0] ^ (1 << chance.randrange(8))])
        case 1:
            return bytes(length)
        case 2:
            return chance.randbytes(length)
        case _:
            return there[4096 : 4096 + length]


def records_of(store: Path) -> Found:
    """Return the records of a store's log."""
    (found,) = find_stores(str(store), "a", formats=COMMITLOGS)
    request = Request(arrow_schema(_SCHEMA), Mode.PERMISSIVE)
    rows = [
        batch
        for split in plan_splits(found, take_snapshot([found]).ranges["a"], _PARTITION)
        for batch in read_split(split, request)
    ]
    table = pa.Table.from_batches(rows).sort_by("physical_offset")
    messages = table.filter(pc.is_valid(table.column("size")))
    starts, sizes = (messages.column(name).to_numpy() for name in ("physical_offset", "size"))
    return Found(starts, sizes, table.num_rows - messages.num_rows)


def measure(whole: Path, work: Path, faults: int, seed: int, *, with_brokers: bool = False) -> Salvage:
    """Damage a copy of a store, and read it.

    Args:
        whole: the store.
        work: folder for the copy.
        faults: number of faults.
        seed: the same seed gives the same faults.
        with_brokers: also count the records that real brokers serve.
    """
    before = records_of(whole)
    starts, sizes = before.starts, before.sizes
    copy = Path(shutil.copytree(whole, work / "damaged"))
    hit = np.zeros(len(starts), bool)
    for begin, end in damage_store(copy, faults, seed):
        first = np.searchsorted(starts + sizes, begin, side="right")
        hit[first : np.searchsorted(starts, end)] = True
    after = records_of(copy)
    read = np.isin(starts[~hit], after.starts).sum()
    wrong = (~np.isin(after.starts, starts)).sum()
    served = serve(copy, starts[~hit], work) if with_brokers else None
    return Salvage(faults, len(starts), int(hit.sum()), int(read), int(wrong), after.bad_ranges, served)


def main() -> None:
    """Make a store, damage it, and print the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gib", type=float, default=1, help="size of the log (default: 1)")
    parser.add_argument("--faults", type=int, default=1000, help="of the whole log (default: 1000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--brokers", action="store_true", help="also see what real brokers serve of it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="salvage-") as folder:
        (corpus,) = make_corpora(Path(folder), arguments.gib, 1024, [1])
        result = measure(corpus.store, Path(folder), arguments.faults, arguments.seed, with_brokers=arguments.brokers)
    print(
        f"{result.faults} faults hit {result.hit:,} of {result.records:,} records; of the others {result.read:,} were "
        f"read, {100 * result.share:.4f} %; {result.quarantined:,} bad ranges told, {result.wrong} rows that are none"
    )
    if result.served is not None:
        served = result.served
        print(
            f"of the {served.intact:,} intact records a broker serves {served.itself:,} of the damaged log, and "
            f"{served.salvaged:,}, {100 * served.salvaged / served.intact:.4f} %, of the salvaged one"
        )


if __name__ == "__main__":
    main()
