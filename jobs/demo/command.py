"""Fill a broker's store with a small shop's messages, archive it, and show the result.

Creates a folder (`commitlake-demo` in the current folder, or --dir) with a store and a lake, and keeps it for further
experiments. A second run starts from the beginning. Exit codes: as for `archive`.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from commitlake.broker_lite.shop_journal import fill_shop_journal
from commitlake.broker_lite.shop_traffic import BOLTMQ_SHOP_OPTIONS, fill_shop_store
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.reading.snapshots import take_snapshot
from commitlake.connectors.reading.stores import find_stores
from commitlake.jobs.archive.offset_snapshots import read_offset_snapshots
from commitlake.jobs.archive.report import summary_lines
from commitlake.jobs.archive.run import VERSION, archive_progress, default_page_writer
from commitlake.jobs.arguments.stores import parse_folder_text, positive
from commitlake.jobs.cli.command import Command, JobError
from commitlake.jobs.cli.missing_packages import SET_UP_SCRIPT
from commitlake.jobs.cli.options import option
from commitlake.jobs.lineage.story_tree import write_tree
from commitlake.jobs.report.rows_output import rows_of_batches, write_table
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.pipelines.lineage.history_reader import read_story
from commitlake.pipelines.lineage.message_history import Question
from commitlake.pipelines.snapshot.progress import StoreSnapshot
from commitlake.pipelines.snapshot.table_append import append_snapshot
from commitlake.schemas.errors import ExitCode

DESCRIPTION = (
    "Fill a small shop's message broker (orders, payments, shipments; delayed, failed and dead messages, "
    "transactions), archive its log into a lake, and show what is in it."
)
EXAMPLES = (
    ("demo", "run everything in the folder commitlake-demo"),
    ("demo --layout jmq", "the same shop with JMQ's files"),
    ("demo --layout boltmq", "the same shop with BoltMQ's files"),
    ("demo --orders 20000 --dir /tmp/big-shop", "a larger shop"),
)
_FILL: Mapping[str, Callable[..., object]] = {
    "rocketmq": fill_shop_store,
    "jmq": lambda store, *, orders, pause: fill_shop_journal(store, orders=orders),  # noqa: ARG005 (it has no pauses)
    "boltmq": partial(fill_shop_store, options=BOLTMQ_SHOP_OPTIONS),
}
_MARK = ".commitlake-demo"
_ORDER = "order-4711"
_BY_TOPIC = (
    "SELECT topic, kind, count(*) AS messages, sum(body_size) AS body_bytes FROM messages GROUP BY 1, 2 ORDER BY 2, 1"
)


class OffsetHistory:
    """Offset snapshots of the stores of an archive run, kept in memory until the lake exists.

    Args:
        config: settings of the run.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._read: list[StoreSnapshot] = []

    def read_offsets(self) -> None:
        """Read the current offsets."""
        found = read_offset_snapshots(self._config)
        stores = find_stores(self._config.store, self._config.broker, formats=self._config.layout) if found else ()
        ranges = take_snapshot(stores).ranges
        self._read += [replace(progress, log_end=ranges[progress.broker].end) for progress in found]

    def append_to_lake(self) -> None:
        """Append the kept snapshots to the lake, oldest first."""
        for progress in self._read:
            append_snapshot(self._config.lake, progress)


@dataclass(frozen=True, kw_only=True)
class Demo(Command):
    """The command `demo`, which fills an example store, archives it, and shows the result."""

    NAME = "demo"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    dir: str = option(
        "the demo's folder (default: commitlake-demo)",
        parse=parse_folder_text,
        default="commitlake-demo",
        metavar="DIR",
    )
    layout: str = option("format of the store's files (default: rocketmq)", default="rocketmq", choices=tuple(_FILL))
    orders: int = option("number of orders in the shop (default: 400)", parse=positive, default=400, metavar="N")

    def run(self) -> ExitCode:
        """Fill the store, archive it, and show the result."""
        from commitlake.connectors.spark.runner import SparkRunner
        from commitlake.jobs.arguments.runner import get_spark_session

        folder = _prepare_demo_folder(Path(self.dir))
        store, lake = folder / "broker-a" / "store", Lake(str(folder / "lake"))
        started = time.monotonic()
        config = Config(str(store), lake, parser_version=VERSION, page=default_page_writer(lake))
        offsets = OffsetHistory(config)
        _FILL[self.layout](store, orders=self.orders, pause=offsets.read_offsets)
        _print_to_stderr(f"a shop's broker, with {self.orders} orders, in {store} ({time.monotonic() - started:.1f} s)")
        result = run_archive(
            SparkRunner(get_spark_session("demo")), config, progress=partial(archive_progress, quiet=self.quiet)
        )
        offsets.read_offsets()
        offsets.append_to_lake()
        _print_to_stderr("\n".join(summary_lines(result)))
        _show_query(lake, "Messages in the log, by topic and kind:", _BY_TOPIC)
        print(f"\nWhat happened to {_ORDER}:\n")
        write_tree(read_story(lake, Question(key=_ORDER)), sys.stdout)
        sys.stdout.flush()
        _print_to_stderr("\nTry next, for example:")
        program = "  .venv/bin/commitlake" if SET_UP_SCRIPT.exists() else "  commitlake"
        _print_to_stderr(f"{program} lineage --lake {lake.root} --key {_ORDER} --html {folder / 'order.html'}")
        _print_to_stderr(f"{program} lag --lake {lake.root}")
        if self.layout != "jmq":
            _print_to_stderr(f"{program} query --lake {lake.root} --kind dlq")
        _print_to_stderr(f"{program} query --lake {lake.root} --topic orders --where \"properties['city'] = '北京'\"")
        _print_to_stderr(f"{program} dump {store} --body-as text | head -n 1")
        return ExitCode.DAMAGE if result.verdict.is_damage else ExitCode.OK


def _prepare_demo_folder(folder: Path) -> Path:
    """Return the demo's folder after deleting an earlier demo's files; raise an error if it contains other files."""
    if folder.exists() and not (folder / _MARK).exists() and any(folder.iterdir()):
        raise JobError(
            f"{folder}: expected an empty folder or that of an earlier demo, found other files: name another folder",
            "name another folder with --dir",
        )
    for name in ("broker-a", "lake"):
        shutil.rmtree(folder / name, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARK).touch()
    return folder


def _show_query(lake: Lake, title: str, sql: str) -> None:
    print(f"\n{title}\n")
    reader = run_sql(lake.table("messages"), "messages", sql)
    write_table(rows_of_batches(reader, 0), reader.schema.names, sys.stdout)
    sys.stdout.flush()


def _print_to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


build_parser, main = Demo.parser, Demo.main
