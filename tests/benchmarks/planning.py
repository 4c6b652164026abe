"""Time and memory to plan an archive run over many stores, and of a run that finds nothing new.

    python -m tests.benchmarks.planning                                 1,250 brokers of 8 segments of 1 GiB
    python -m tests.benchmarks.planning --brokers 200 --segments 4

The segments are written once, by broker_lite; each broker has hard links to them. Only the first and last 16 MiB of a
full segment stay on the disk, because planning reads nothing else. For the runs that find nothing new, a lake first
archives the newest segments alone, with 1 MiB of records, and the older ones appear later. Then the newest segments are
half filled, as those of running brokers are, and a first run is planned.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.archive.run import Config, plan_work
from tests.benchmarks.commands import run_commitlake
from tests.benchmarks.machine import machine
from tests.support.corpus import json_bodies, shop_batches

_GIB = 1 << 30
_KEPT_BYTES = 16 << 20
_THIS = "tests.benchmarks.planning"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.planning", description=__doc__.splitlines()[0])
    parser.add_argument("--brokers", type=int, default=1250, help="number of stores (default: %(default)s)")
    parser.add_argument("--segments", type=int, default=8, help="of each store (default: %(default)s)")
    parser.add_argument("--newest-mib", type=int, default=512, help="of records in the newest (default: %(default)s)")
    parser.add_argument("--cores", type=int, default=400, help="of the cluster that is planned for")
    parser.add_argument("--measure", nargs=2, metavar=("STORES", "LAKE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.measure:
        stores, lake = arguments.measure
        _plan(stores, lake, arguments.cores)
        return 0
    print(*(f"{name}: {value}" for name, value in machine().items()), sep="\n")
    table = Table("run", "brokers", "segments", "seconds", "processor seconds", "largest memory, MiB")
    with tempfile.TemporaryDirectory(prefix="commitlake-planning-") as folder:
        place = Path(folder)
        *full, newest = _write_segments(place, arguments.segments, arguments.newest_mib << 20)
        stores = [place / "stores" / f"broker-{number:04}" / "commitlog" for number in range(arguments.brokers)]
        lake, empty = str(place / "lake"), str(place / "empty")
        run = ["archive", "--store", _paths(place), "--local", "--quiet", "--lake"]
        plan = ["--cores", str(arguments.cores), "--measure", _paths(place)]
        _link(stores, _beginning_of(newest), newest.name)
        run_commitlake([*run, lake])
        for segment in full:
            _link(stores, segment, segment.name)
        idle = run_commitlake([*run, lake])
        idle_plan = run_commitlake([*plan, lake], module=_THIS)
        _link(stores, newest, newest.name)
        first_plan = run_commitlake([*plan, empty], module=_THIS)
        for name, found in (
            ("plan of the first run", first_plan),
            ("plan that finds nothing new", idle_plan),
            ("run that finds nothing new", idle),
        ):
            brokers, segments = arguments.brokers, arguments.brokers * arguments.segments
            table.add_row(name, f"{brokers:,}", f"{segments:,}", *(f"{figure:,.1f}" for figure in found))
    Console(width=120).print(table)
    return 0


def _paths(place: Path) -> str:
    return f"{place}/stores/*"


def _plan(stores: str, lake: str, cores: int) -> None:
    """Plan a run."""
    config = Config(stores, Lake(lake))
    work = plan_work(config)
    if work.has_new_data:
        work.parts(config.max_partition_bytes, cores)


def _write_segments(place: Path, segments: int, newest_bytes: int) -> list[Path]:
    """Write full segments and a partly filled one, and return them."""
    options = StoreOptions(segment_size_bytes=_GIB, index_slots=1000, index_entries=4000, keep_index=False)
    end, written = (segments - 1) * _GIB + newest_bytes, 0
    log = place / "written" / "commitlog"
    with MessageStore.open(place / "written", options) as store:
        for batch in shop_batches(json_bodies(16 << 10)):
            offset = store.put_batch(batch)[0].physical_offset
            if offset // _GIB > written // _GIB:
                _keep_ends(log / f"{written // _GIB * _GIB:020}")
            if offset >= end:
                break
            written = offset
    return sorted(log.iterdir())


def _keep_ends(segment: Path) -> None:
    """Free the middle of a full segment."""
    middle = ["--offset", str(_KEPT_BYTES), "--length", str(_GIB - 2 * _KEPT_BYTES)]
    subprocess.run(["fallocate", "--punch-hole", *middle, segment], check=True)


def _beginning_of(segment: Path) -> Path:
    """Return a segment as it was when the broker had written 1 MiB of it."""
    beginning = segment.with_suffix(".beginning")
    with segment.open("rb") as file:
        beginning.write_bytes(file.read(1 << 20))
    os.truncate(beginning, _GIB)
    return beginning


def _link(folders: Sequence[Path], segment: Path, name: str) -> None:
    """Give each broker a segment under a name, in place of one that is there."""
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).unlink(missing_ok=True)
        os.link(segment, folder / name)


if __name__ == "__main__":
    sys.exit(main())
