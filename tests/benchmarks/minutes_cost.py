"""Share of an archive's time that `topic_minutes` takes.

    python -m tests.benchmarks.minutes_cost                         a store of 1 GiB, bodies of 200 bytes
    python -m tests.benchmarks.minutes_cost --body 1024 --runs 9    larger bodies

Archives the same store into new lakes, in turn with and without the table, each in a process of its own. The runs use
`--local`, and make no keys, expectations or edges, so that as little other work as possible is counted. Without the
table, the tasks' counter is replaced by one that does nothing, for which `archive` has no option. Times are the minimum
and the median of all pairs but the first. On a busy machine, times vary by more than the share. So each pair is
followed by a run that measures the processor time of the counter itself, in its thread, and of the whole run.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TypeVar

import pyarrow as pa

from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.jobs.cli import main as cli
from commitlake.pipelines.archive import task
from commitlake.pipelines.topic_minutes.minute_counts import MinutesFiles
from tests.benchmarks.commands import CommandRun, run_commitlake
from tests.benchmarks.machine import machine
from tests.support.corpus import make_corpora

_WITHOUT, _TIMED = "without", "timed"
Result = TypeVar("Result")
_OPTIONS = ("--local", "--no-keys", "--no-quality", "--no-edges", "--quiet")


class _NoMinutes(MinutesFiles):
    """A counter that counts nothing."""

    def add(self, messages: pa.Table) -> None:
        """Do nothing."""

    def finish(self) -> list[DataFile]:
        """Return no file."""
        return []


class _TimedMinutes(MinutesFiles):
    """A counter that adds up its processor time."""

    seconds = 0.0
    _lock = threading.Lock()

    def add(self, messages: pa.Table) -> None:
        """Count rows, as the counter does."""
        self._timed(lambda: MinutesFiles.add_messages(self, messages))

    def finish(self) -> list[DataFile]:
        """Write the counts, as the counter does."""
        return self._timed(lambda: MinutesFiles.finish_files(self))

    def _timed(self, work: Callable[[], Result]) -> Result:
        begun = time.thread_time()
        found = work()
        with self._lock:
            _TimedMinutes.seconds += time.thread_time() - begun
        return found


def main(argv: Sequence[str]) -> int:
    """Run the measurement; or, if the first argument says so, archive without the table or with its time measured."""
    if argv[:1] == [_WITHOUT]:
        setattr(task, MinutesFiles.__name__, _NoMinutes)
        return cli.main(argv[1:])
    if argv[:1] == [_TIMED]:
        setattr(task, MinutesFiles.__name__, _TimedMinutes)
        code = cli.main(argv[1:])
        print(_TimedMinutes.seconds, time.process_time())
        return code
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.minutes_cost", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--gib", type=float, default=1.0, help="size of the store (default: %(default)s)")
    parser.add_argument("--body", type=int, default=200, help="bytes of a body (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=6, help="pairs of archives (default: %(default)s)")
    parser.add_argument("--dir", metavar="DIR", type=Path, help="make the store here, and keep it")
    arguments = parser.parse_args(argv)
    print(*(f"{name}: {value}" for name, value in machine().items()), sep="\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="commitlake-minutes-") as folder:
        (corpus,) = make_corpora(arguments.dir or Path(folder), arguments.gib, arguments.body, [1])
        runs: dict[bool, list[CommandRun]] = {True: [], False: []}
        shares = []
        for _ in range(arguments.runs):
            for counts, found in runs.items():
                found.append(_archive(corpus.store, Path(folder, "lake"), [] if counts else [_WITHOUT]))
            with tempfile.TemporaryFile() as answer:
                _archive(corpus.store, Path(folder, "lake"), [_TIMED], answer)
                answer.seek(0)
                counting, whole = map(float, answer.read().split()[-2:])
                shares.append(counting / (whole - counting))
        print(f"{corpus.messages:,} messages with bodies of {corpus.body_bytes} bytes")
        for name, place in (("time", 0), ("processor time", 1)):
            having, lacking = ([run[place] for run in found[1:] or found] for found in runs.values())
            pairs = [one / other for one, other in zip(having, lacking, strict=True)]
            print(
                f"{name}: {min(having):.2f} s with topic_minutes, {min(lacking):.2f} s without: ratio "
                f"{min(having) / min(lacking):.3f}; medians {statistics.median(having):.2f} and "
                f"{statistics.median(lacking):.2f} s; median of the pairs' ratios {statistics.median(pairs):.3f}"
            )
        print(
            f"counting in one run: {min(shares):.1%} to {max(shares):.1%} of all other processor time, median "
            f"{statistics.median(shares):.1%}"
        )
    return 0


def _archive(store: Path, lake: Path, mode: Sequence[str], output: IO[bytes] | int = subprocess.DEVNULL) -> CommandRun:
    words = ["archive", "--store", str(store), "--broker", "broker-a", "--lake", str(lake), *_OPTIONS]
    try:
        if not mode:
            return run_commitlake(words, output)
        return run_commitlake([*mode, *words], output, module="tests.benchmarks.minutes_cost")
    finally:
        shutil.rmtree(lake, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
