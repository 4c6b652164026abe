"""Time and memory to plan an archive run over many stores, and of a run that finds nothing new.

    python -m tests.benchmarks.planning                                 1,250 brokers of 8 segments of 1 GiB
    python -m tests.benchmarks.planning --brokers 200 --segments 4

The segments are written once, by broker_lite, and are complete; each broker has hard links to them. Only the first and
last 16 MiB of a full segment stay on the disk, because planning reads nothing else. The newest one is partly written,
as that of a running broker is. For the run that finds nothing new, a lake first archives the newest
segments alone, and the older ones appear later. The processor time and the memory are those of a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.jobs.archive.command import main as archive
from commitlake.pipelines.archive.run import Config, plan_work
from tests.benchmarks.machine import machine
from tests.support.corpus import json_bodies, shop_batches

_GIB = 1 << 30
_KEPT_BYTES = 16 << 20
_LAKES = {"first run": "empty", "nothing new": "lake"}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.planning", description=__doc__.splitlines()[0])
    parser.add_argument("--brokers", type=int, default=1250, help="number of stores (default: %(default)s)")
    parser.add_argument("--segments", type=int, default=8, help="of each store (default: %(default)s)")
    parser.add_argument("--newest-mib", type=int, default=1, help="written in the newest one (default: %(default)s)")
    parser.add_argument("--cores", type=int, default=400, help="of the cluster that is planned for")
    parser.add_argument("--measure", nargs=2, metavar=("STORES", "LAKE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.measure:
        stores, lake = arguments.measure
        print(json.dumps(_measure(stores, lake, arguments.cores)))
        return 0
    print(*(f"{name}: {value}" for name, value in machine().items()), sep="\n")
    table = Table("run", "brokers", "segments", "parts", "seconds", "processor seconds", "largest memory, MiB")
    with tempfile.TemporaryDirectory(prefix="commitlake-planning-") as folder:
        place = Path(folder)
        names = _write_segments(place, arguments.segments, arguments.newest_mib << 20)
        stores = [place / "stores" / f"broker-{number:04}" / "commitlog" for number in range(arguments.brokers)]
        _link(place, stores, names[-1:])
        assert archive(["--store", _paths(place), "--lake", str(place / "lake"), "--local", "--quiet"]) == 0
        _link(place, stores, names[:-1])
        for name, lake in _LAKES.items():
            command = [sys.executable, "-m", "tests.benchmarks.planning"]
            command += ["--cores", str(arguments.cores), "--measure", _paths(place), str(place / lake)]
            found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            parts, seconds, busy, mib = (found[key] for key in ("parts", "seconds", "processor", "mib"))
            brokers, segments = arguments.brokers, arguments.brokers * arguments.segments
            figures = [f"{parts:,}", f"{seconds:.2f}", f"{busy:.2f}", f"{mib:,.0f}"]
            table.add_row(name, f"{brokers:,}", f"{segments:,}", *figures)
    Console(width=120).print(table)
    return 0


def _paths(place: Path) -> str:
    return f"{place}/stores/*"


def _measure(stores: str, lake: str, cores: int) -> dict[str, float]:
    """Plan a run in this process."""
    before, busy = time.monotonic(), time.process_time()
    config = Config(stores, lake)
    work = plan_work(config)
    parts = work.parts(config.max_partition_bytes, cores) if work.has_new else ()
    return {
        "parts": len(parts),
        "seconds": time.monotonic() - before,
        "processor": time.process_time() - busy,
        "mib": _largest_memory_kib() / 1024,
    }


def _largest_memory_kib() -> int:
    """Return the peak memory of this process; in getrusage's figure, that of its parent is included."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1])


def _write_segments(place: Path, segments: int, newest_bytes: int) -> list[str]:
    """Write full segments and a partly filled one, and return their names."""
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
    return sorted(path.name for path in log.iterdir())


def _keep_ends(segment: Path) -> None:
    """Free the middle of a full segment."""
    middle = ["--offset", str(_KEPT_BYTES), "--length", str(_GIB - 2 * _KEPT_BYTES)]
    subprocess.run(["fallocate", "--punch-hole", *middle, segment], check=True)


def _link(place: Path, stores: Sequence[Path], names: Sequence[str]) -> None:
    for folder in stores:
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            os.link(place / "written" / "commitlog" / name, folder / name)


if __name__ == "__main__":
    sys.exit(main())
