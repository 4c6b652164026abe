"""A rebuild compared with a real broker's own, of the same log, on this machine.

    python -m tests.benchmarks.rebuild --gib 1 --factors 1,4

Makes stores of a shop's messages (`tests.support.corpus`), rebuilds each several times on this machine's cores, and
then starts a broker on a copy of the log that has no indexes. The broker is timed from the start of its process until
its files have the last entry of every queue and of the index; and also from the first entry on, because the start of a
JVM is not part of a rebuild. At the end its files are compared with ours, byte by byte.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.runtime.local_runner import ThreadRunner
from commitlake.pipelines.rebuild.run import RebuildResult, rebuild_store
from commitlake.pipelines.rebuild.settings import RequestedSettings
from commitlake.schemas.layouts.rocketmq.consumequeue import ENTRY
from commitlake.schemas.layouts.rocketmq.indexfile import ENTRY as INDEX_ENTRY
from commitlake.schemas.layouts.rocketmq.indexfile import geometry_of, parse_header
from tests.benchmarks.machine import machine
from tests.servers.rocketmq import FAST_JVM, BrokerOptions, RocketMQ
from tests.support.corpus import GIB, Corpus, make_corpora

_POLL_SECONDS = 0.02
_TIMEOUT_SECONDS = 1800
_WARM_UP_GIB = 1 / 64


@dataclass(frozen=True, slots=True)
class Sign:
    """The last bytes that a broker writes to a file; once they are there, the file is complete.

    Attributes:
        folder: the file's folder, relative to the store's.
        name: name of the file; None for any file, because an IndexFile's name is not known in advance.
        position: position of the bytes.
        expected: the bytes.
    """

    folder: Path
    name: str | None
    position: int
    expected: bytes

    def is_there(self, root: Path) -> bool:
        """Return whether the file has these bytes."""
        folder = root / self.folder
        if not folder.is_dir():
            return False
        paths = [folder / self.name] if self.name else sorted(folder.iterdir())
        return any(path.exists() and _read(path, self.position, len(self.expected)) == self.expected for path in paths)


def _read(path: Path, position: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(position)
        return file.read(size)


def signs_of(out: Path) -> list[Sign]:
    """Return the signs for the last entry of every queue and of the last index file."""
    signs = []
    for folder in sorted((out / "consumequeue").glob("*/*")):
        path = max(folder.iterdir())
        data = path.read_bytes().rstrip(b"\0")
        position = (len(data) - 1) // ENTRY.size * ENTRY.size
        expected = path.read_bytes()[position : position + ENTRY.size]
        signs.append(Sign(folder.relative_to(out), path.name, position, expected))
    path = max((out / "index").iterdir())
    header = parse_header(_read(path, 0, 40))
    position = geometry_of(path.stat().st_size).entry_position(header.index_count - 1)
    signs.append(Sign(Path("index"), None, position, _read(path, position, INDEX_ENTRY.size)))
    return signs


def rebuild_once(store: Path, out: Path) -> tuple[float, RebuildResult]:
    """Return the seconds of one rebuild."""
    shutil.rmtree(out, ignore_errors=True)
    (found,) = find_stores(str(store), "a", formats=COMMITLOGS)
    begun = time.perf_counter()
    rebuilt = rebuild_store(found, out, RequestedSettings(), runner=ThreadRunner())
    return time.perf_counter() - begun, rebuilt


def brokers_own(store: Path, signs: Sequence[Sign], folder: Path, segment_bytes: int) -> tuple[float, float, Path]:
    """Return a broker's seconds from its start, and from its first entry, to its last entry; and its store."""
    copy = folder / "store"
    shutil.copytree(store / "commitlog", copy / "commitlog", copy_function=shutil.copyfile)
    options = BrokerOptions(segment_size_bytes=segment_bytes)
    servers = RocketMQ("5.5.0", folder, store=copy, options=options, jvm=FAST_JVM)
    servers.start_name_server()
    starter = threading.Thread(target=servers.start_broker)
    begun = time.perf_counter()
    first = 0.0
    starter.start()
    try:
        left = list(signs)
        while left:
            left = [sign for sign in left if not sign.is_there(copy)]
            if not first and (copy / "index").is_dir() and any((copy / "index").iterdir()):
                first = time.perf_counter()
            if time.perf_counter() - begun > _TIMEOUT_SECONDS:
                raise TimeoutError(f"{len(left)} of {len(signs)} queues are not complete")
            time.sleep(_POLL_SECONDS)
        ended = time.perf_counter()
    finally:
        starter.join()
        servers.stop()
    return ended - begun, ended - first, copy


def differences(theirs: Path, ours: Path) -> int:
    """Return the files that differ; index files are compared in order."""
    queues = {path.relative_to(theirs): path for path in (theirs / "consumequeue").rglob("*") if path.is_file()}
    own = {path.relative_to(ours): path for path in (ours / "consumequeue").rglob("*") if path.is_file()}
    # A broker also has queues of its own topics, once it has stored messages there.
    count = sum(name not in queues or queues[name].read_bytes() != path.read_bytes() for name, path in own.items())
    pairs = zip(sorted((theirs / "index").iterdir()), sorted((ours / "index").iterdir()), strict=True)
    return count + sum(before.read_bytes() != after.read_bytes() for before, after in pairs)


def measure(corpus: Corpus, runs: int, work: Path, *, with_broker: bool) -> None:
    """Measure the rebuild of a store, and print the times."""
    out = work / "out"
    size = sum(path.stat().st_size for path in (corpus.store / "commitlog").iterdir())
    times = []
    for _ in range(runs):
        seconds, rebuilt = rebuild_once(corpus.store, out)
        times.append(seconds)
    ours = statistics.median(times)
    print(
        f"{size / GIB:g} GiB, {corpus.messages:,} messages, {rebuilt.totals.keys:,} keys: rebuilt in {ours:.2f} s, "
        f"{size / GIB / ours:.2f} GiB/s (of {', '.join(f'{each:.2f}' for each in times)})",
        flush=True,
    )
    if not with_broker:
        return
    segment = max(path.stat().st_size for path in (corpus.store / "commitlog").iterdir())
    with tempfile.TemporaryDirectory(prefix="broker-", dir=work) as folder:
        gross, net, theirs = brokers_own(corpus.store, signs_of(out), Path(folder), segment)
        print(
            f"  the broker's own: {gross:.2f} s from its start, {net:.2f} s from its first entry, {net / ours:.1f} and "
            f"{gross / ours:.1f} times as long; {differences(theirs, out)} of its files differ",
            flush=True,
        )


def main() -> None:
    """Make the stores, measure, and print the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gib", type=float, default=1, help="size of the smallest log (default: 1)")
    parser.add_argument("--factors", default="1", help="its multiples, with commas between (default: 1)")
    parser.add_argument("--runs", type=int, default=3, help="of each rebuild (default: 3)")
    parser.add_argument("--corpora", type=Path, help="folder that keeps the stores for the next time")
    parser.add_argument("--no-broker", action="store_true", help="only the rebuild")
    arguments = parser.parse_args()
    print(*(f"{name}: {value}" for name, value in machine().items()), sep="\n")
    with tempfile.TemporaryDirectory(prefix="rebuild-") as folder:
        work = Path(folder)
        corpora = arguments.corpora or work
        (small,) = make_corpora(work, _WARM_UP_GIB, 1024, [1])
        rebuild_once(small.store, work / "warm")  # compiles the kernels, or loads them from the cache
        factors = [int(each) for each in arguments.factors.split(",")]
        for corpus in make_corpora(corpora, arguments.gib, 1024, factors):
            measure(corpus, arguments.runs, work, with_broker=not arguments.no_broker)


if __name__ == "__main__":
    main()
