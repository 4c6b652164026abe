"""Growth of a lake over a year of nightly runs: files, logs of tables, and the time of runs.

    python -m tests.benchmarks.year                                 365 nights, 20 brokers of 50 messages a night
    python -m tests.benchmarks.year --nights 90 --brokers 200
    python -m tests.benchmarks.year --without-maintain              what becomes of a lake that nobody maintains

Each night, every broker stores messages of one day, one archive run commits them, and `maintain` runs. Then all files
of the lake become a day older, so that `maintain` deletes entries of logs as in a real year. Removed files keep their
real times, so checkpoints go on naming all of them and are larger than in a real year. On some nights, cold commands
are measured on the lake: an archive run that finds nothing new, a look-up by id, `maintain --dry-run`, and the night's
`maintain`. The nightly runs do not check expectations (`--no-quality`), which would take most of the time and leave
no files that grow.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table

from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.archive.command import main as archive
from commitlake.jobs.maintain.command import main as maintain
from tests.benchmarks.commands import CommandRun, run_commitlake
from tests.benchmarks.machine import machine
from tests.support.logs import new_message
from tests.support.small_stores import Clock

_DAY_SECONDS = 86_400
_START_MS = 1_700_006_400_000
_SEGMENT_BYTES = 1 << 20
_QUEUE_BYTES = 20_000
_MEASURED = (1, 30, 90, 180, 365)
_COLUMNS = ("night", "files of messages", "files of logs", "logs, MiB", "nothing new", "look-up", "dry run", "maintain")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.year", description=__doc__.splitlines()[0])
    parser.add_argument("--nights", type=int, default=365, help="archive runs (default: %(default)s)")
    parser.add_argument("--brokers", type=int, default=20, help="number of stores (default: %(default)s)")
    parser.add_argument("--messages", type=int, default=50, help="of each store and night (default: %(default)s)")
    parser.add_argument("--without-maintain", action="store_true", help="leave the lake alone after each archive run")
    arguments = parser.parse_args(argv)
    print(*(f"{name}: {value}" for name, value in machine().items()), sep="\n")
    table = Table(*_COLUMNS)
    with tempfile.TemporaryDirectory(prefix="commitlake-year-") as folder:
        is_maintained = not arguments.without_maintain
        year = _Year(Path(folder), arguments.brokers, arguments.messages, is_maintained=is_maintained)
        measured = {night for night in _MEASURED if night < arguments.nights} | {arguments.nights}
        for night in range(1, arguments.nights + 1):
            year.run_night(night)
            if night in measured:
                row = [str(night), *year.figures()]
                table.add_row(*row)
                print(*row, sep=" | ", file=sys.stderr)
            if is_maintained:
                year.maintain()
            _age(year.lake)
    Console(width=120).print(table)
    return 0


class _Year:
    """Stores and their lake.

    Attributes:
        lake: its folder.
    """

    def __init__(self, place: Path, brokers: int, messages: int, *, is_maintained: bool) -> None:
        self._is_maintained = is_maintained
        self.lake = place / "lake"
        self._stores = place / "stores"
        self._brokers, self._messages = brokers, messages
        self._places = ["--store", f"{self._stores}/*", "--lake", str(self.lake), "--local", "--quiet"]

    def run_night(self, night: int) -> None:
        """Store one day's messages in every store, and archive them."""
        start_ms = _START_MS + night * _DAY_SECONDS * 1000
        for broker in range(self._brokers):
            _write_day(self._stores / f"broker-{broker:03}", start_ms, self._messages)
        code = archive([*self._places, "--no-quality"])
        assert code == 0, code

    def maintain(self) -> None:
        """Run `maintain` in this process."""
        code = maintain(["--lake", str(self.lake), "--quiet"])
        assert code == 0, code

    def figures(self) -> Iterator[str]:
        """Return the figures of `_COLUMNS`; the commands run in separate processes."""
        logs = [path for path in self.lake.rglob("_delta_log/*") if path.is_file()]
        messages = DeltaTable(Lake(str(self.lake)).uri("messages"))
        yield f"{len(messages.file_uris()):,}"
        yield f"{len(logs):,}"
        yield f"{sum(path.stat().st_size for path in logs) / (1 << 20):.1f}"
        (message_id,) = messages.to_pyarrow_dataset().head(1, columns=["msg_id"]).column(0).to_pylist()
        yield _told(run_commitlake(["archive", *self._places]))
        yield _told(run_commitlake(["query", "--lake", str(self.lake), "--id", message_id]))
        maintain_lake = ["maintain", "--lake", str(self.lake), "--quiet"]
        yield _told(run_commitlake([*maintain_lake, "--dry-run"]))
        if self._is_maintained:
            yield _told(run_commitlake(maintain_lake))


def _write_day(store: Path, start_ms: int, messages: int) -> None:
    """Store messages that are spread over a day."""
    clock = Clock(start_ms)
    options = StoreOptions(
        segment_size_bytes=_SEGMENT_BYTES,
        consume_queue_file_size_bytes=_QUEUE_BYTES,
        index_slots=1000,
        index_entries=4000,
        keep_index=False,
    )
    with MessageStore.open(store, options, clock=clock) as broker:
        for number in range(messages):
            clock.now_ms = start_ms + number * _DAY_SECONDS * 1000 // messages
            broker.put(new_message(number, topic=f"topic-{number % 5}", born_timestamp=clock.now_ms))


def _age(lake: Path) -> None:
    """Make all files of a lake a day older."""
    for path in lake.rglob("*"):
        found = path.stat()
        os.utime(path, (found.st_atime - _DAY_SECONDS, found.st_mtime - _DAY_SECONDS))


def _told(run: CommandRun) -> str:
    return f"{run.seconds:.1f} s, {run.mib:,.0f} MiB"


if __name__ == "__main__":
    sys.exit(main())
