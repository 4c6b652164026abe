"""Work of `commitlake ship`: rounds of the agent, with pauses, retries, progress and a summary."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from commitlake.connectors.lake.owned_folders import refuse_owned_folder
from commitlake.connectors.reading.unread_warnings import UNREAD
from commitlake.connectors.shipping.ship_target import ShipTarget, ShipUnavailableError
from commitlake.connectors.shipping.storage_target import StorageTarget
from commitlake.connectors.storage.adapter_choice import is_storage_uri, open_storage
from commitlake.connectors.storage.bandwidth_limit import BandwidthLimit
from commitlake.connectors.storage.uris import check_no_secret, has_scheme, is_s3
from commitlake.jobs.arguments.s3 import set_s3_environment
from commitlake.jobs.arguments.similar_names import print_warning
from commitlake.jobs.arguments.sizes import size_text
from commitlake.jobs.cli import run_metrics
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.process import call_on_first_signal, received_stop_signal
from commitlake.jobs.cli.progress import counted_progress
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.ship.arguments import ShipOptions
from commitlake.pipelines.ship.agent import ShipAgent, ShipRound, ShipStoppedError
from commitlake.pipelines.ship.log_end import UNCHANGED_SECONDS
from commitlake.pipelines.ship.settings import ShipSettings
from commitlake.pipelines.ship.source_store import SourceStore
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count

_NICE = 10
_IO_PRIORITY_IDLE = 3 << 13
_IO_PRIORITY_CALLS = {"x86_64": 251, "aarch64": 30}
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 2.0, 120.0
_REPORT_SECONDS = 60.0
_SHOWN_SKIPPED = 5
_LOG = logging.getLogger(__name__)


def ship_store(command: ShipOptions, broker: str) -> ExitCode:
    """Copy a store to the target, once or continuously, as the options say.

    Args:
        broker: name of the store.
    """
    lower_priority()
    source = SourceStore(command.store, broker)
    with closing(open_target(command, source)) as target:
        shipping = _ShipJob(command, source, target, ShipSettings(broker, has_other_files=not command.log_only))
        return shipping.ship_once() if command.once else shipping.ship_continuously()


def fetch_store(command: ShipOptions) -> ExitCode:
    """Download a shipped copy of a store from an object store or HDFS into a folder."""
    from commitlake.connectors.shipping.folder_target import FolderTarget
    from commitlake.pipelines.ship.shipped_store_fetch import Fetcher

    if has_scheme(command.to):
        raise JobError(
            f"--to {command.to}: expected a local folder, found a URI", "mount other file systems as a folder"
        )
    refuse_owned_folder(command.to, "--to")
    source = _open_storage_target(command, command.store)
    started = time.monotonic()
    with closing(FolderTarget(command.to, BandwidthLimit())) as target:
        target.claim()
        fetcher = Fetcher(source, target)
        with counted_progress("fetch", fetcher.count_missing_bytes(), "bytes", quiet=command.quiet) as advance:
            log = fetcher.fetch_missing_files(advance)
    run_metrics.add_to_counter("ship_bytes", fetcher.new_bytes)
    seconds = max(0.001, time.monotonic() - started)
    if not command.quiet:
        print_line(
            f"fetched {size_text(fetcher.new_bytes)} of {log.broker} to {command.to} in {seconds:.1f} s "
            f"({size_text(fetcher.new_bytes / seconds)}/s); the folder is a store, which jobs read like a broker's"
        )
    return ExitCode.DAMAGE if log.lost else ExitCode.OK


def open_target(command: ShipOptions, source: SourceStore) -> ShipTarget:
    """Return the target that the arguments name.

    Raises:
        JobError: if it is the store itself, or no target.
    """
    place: str = command.to
    if is_storage_uri(place):
        target = _open_storage_target(command, place)
        if is_s3(place):  # lakes are in no other object stores
            refuse_owned_folder(place, "--to")
        return target
    if has_scheme(place):
        check_no_secret(place)
        raise JobError(
            f"--to {place}: expected s3://bucket/prefix, gs://bucket/prefix, "
            "abfss://container@account.dfs.core.windows.net/prefix, hdfs://host:port/folder, or a folder",
            "mount other file systems as a folder",
        )
    from commitlake.connectors.shipping.folder_target import FolderTarget

    root, folder = Path(os.path.realpath(source.root)), Path(os.path.realpath(place))
    if folder == root or root in folder.parents or folder in root.parents:
        raise JobError(f"--to {place}: the store and its copy cannot be inside one another", "ship to another folder")
    refuse_owned_folder(place, "--to")
    return FolderTarget(place, BandwidthLimit(command.rate))


def _open_storage_target(command: ShipOptions, uri: str) -> StorageTarget:
    """Return a prefix in an object store or HDFS, to which a store is copied or from which it is downloaded."""
    set_s3_environment(command)
    return StorageTarget(open_storage(uri, BandwidthLimit(command.rate)))


def lower_priority() -> None:
    """Give this process the lowest priority for the disk, and a low one for the CPU, as far as the system can."""
    with suppress(OSError):
        os.nice(_NICE)
    # Python has no call for `ioprio_set`, so it is called by its number, which depends on the processor.
    number = _IO_PRIORITY_CALLS.get(os.uname().machine)
    if sys.platform == "linux" and number is not None:
        import ctypes

        ctypes.CDLL(None, use_errno=True).syscall(number, 1, 0, _IO_PRIORITY_IDLE)


class _ShipJob:
    """State of a run of `ship`: the store, the target, and the progress so far."""

    def __init__(self, command: ShipOptions, source: SourceStore, target: ShipTarget, settings: ShipSettings) -> None:
        self._quiet: bool = command.quiet
        self._interval: float = command.interval.total_seconds()
        self._files_interval: float = command.files_interval.total_seconds()
        self._source, self._target, self._settings = source, target, settings
        self._stop = threading.Event()
        self._agent: ShipAgent | None = None
        self._show: Callable[[int], None] | None = None
        self._started = time.monotonic()
        self._found = ShipRound()
        self._skipped: set[str] = set()
        self._counted = [0, 0, 0]

    def ship_once(self) -> ExitCode:
        """Copy the data that the target lacks once, and return the exit code."""
        with self._stop_on_signal():
            self._target.claim()
            agent = self._agent = self._open_agent()
            with counted_progress("ship", agent.count_unshipped_bytes(), "bytes", quiet=self._quiet) as advance:
                self._show = advance
                self._found = agent.ship_round()
                self._warn_of_unread_messages()
                self._warn_of_skipped_files()  # the next round does not look at these files
                # The newest record is shipped only after it has been unchanged for a time; one more round ships it.
                if self._found.is_waiting and not self._stop.wait(1.1 * UNCHANGED_SECONDS):
                    self._found = agent.ship_round(includes_other_files=False)
        code = self._print_result()
        if (number := received_stop_signal()) is not None:  # it was stopped before everything was shipped
            return ExitCode.TERMINATED if number == signal.SIGTERM else ExitCode.INTERRUPTED
        return code

    def ship_continuously(self) -> ExitCode:
        """Copy new data until a signal arrives, and return the exit code; wait while the target cannot be reached."""
        wait, reported, files_at = _FIRST_WAIT_SECONDS, time.monotonic(), -self._files_interval
        with self._stop_on_signal():
            while not self._stop.is_set():
                try:
                    if self._agent is None:
                        self._target.claim()
                        self._agent = self._open_agent()
                    # Small files change less often than the log, and listing them costs requests.
                    has_files = time.monotonic() - files_at >= self._files_interval
                    self._found = self._agent.ship_round(includes_other_files=has_files)
                    if has_files:
                        self._warn_of_unread_messages()
                except ShipUnavailableError as error:
                    print_warning("commitlake ship", f"{error}. Next attempt in {wait:.0f} s")
                    self._update_metrics()
                    self._stop.wait(wait)
                    wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
                    continue
                wait = _FIRST_WAIT_SECONDS
                files_at = time.monotonic() if has_files else files_at
                self._warn_of_skipped_files()
                self._update_metrics()
                if time.monotonic() - reported >= _REPORT_SECONDS:
                    reported = time.monotonic()
                    self._print_unless_quiet(self._summary_text())
                self._stop.wait(self._interval)
        return self._print_result()

    @contextmanager
    def _stop_on_signal(self) -> Iterator[None]:
        with call_on_first_signal(self._stop.set), suppress(ShipStoppedError):
            yield

    def _open_agent(self) -> ShipAgent:
        return ShipAgent(
            self._source,
            self._target,
            self._settings,
            on_progress=self._advance_progress,
            is_stopped=self._stop.is_set,
        )

    def _advance_progress(self, byte_count: int) -> None:
        """Advance the progress bar, if one is shown."""
        if self._show is not None:
            self._show(byte_count)

    def _print_result(self) -> ExitCode:
        self._warn_of_skipped_files()
        self._update_metrics()
        self._print_unless_quiet(self._summary_text())
        agent = self._agent
        has_damage = agent is not None and (agent.counts.cut or agent.counts.rewritten or agent.log_manifest.lost)
        return ExitCode.DAMAGE if has_damage or self._skipped else ExitCode.OK

    def _summary_text(self) -> str:
        if self._agent is None:
            return f"nothing was shipped to {self._target.text}"
        counts, seconds = self._agent.counts, max(0.001, time.monotonic() - self._started)
        parts = [
            f"shipped {size_text(counts.new_bytes)} to {self._target.text}",
            f"sealed {format_count(counts.sealed, 'file')}",
            f"sent {size_text(counts.sent_bytes)} in {seconds:.1f} s ({size_text(counts.sent_bytes / seconds)}/s)",
        ]
        if self._found.end is None:
            parts.append("the store has no message yet")
        else:
            parts.append(f"the copy of the log ends at physical offset {self._found.end}")
        if counts.cut:
            parts.append(f"{format_count(counts.cut, 'segment')} cut or deleted before being shipped completely")
        if counts.rewritten:
            parts.append(f"{format_count(counts.rewritten, 'file')} changed by the broker and sent again")
        if lost := self._agent.log_manifest.lost:
            size = sum(end - start for start, end in lost)
            parts.append(f"{size_text(size)} of the log were deleted before they were shipped")
        if self._found.damaged_at is not None:
            parts.append(
                f"the bytes at physical offset {self._found.damaged_at} are not a valid record: they are shipped when "
                "a valid one follows"
            )
        return "; ".join(parts)

    def _warn_of_unread_messages(self) -> None:
        """Warn of messages in other log folders of the store, which are not copied."""
        for sentence in self._source.newer_data_sentences():
            UNREAD.warning("%s", sentence)

    def _warn_of_skipped_files(self) -> None:
        """Warn once of each file that is not copied."""
        new = [text for text in self._found.skipped if text not in self._skipped]
        for text in new[:_SHOWN_SKIPPED]:
            print_warning("commitlake ship", f"skipped: {text}")
        if len(new) > _SHOWN_SKIPPED:
            print_warning("commitlake ship", f"skipped {format_count(len(new) - _SHOWN_SKIPPED, 'more file')}")
        self._skipped.update(new)

    def _update_metrics(self) -> None:
        """Update the counters of copied data in the file of --metrics-file."""
        if self._agent is None:
            return
        counts = self._agent.counts
        now = [counts.new_bytes, counts.sent_bytes, counts.sealed]
        for name, before, after in zip(
            ("ship_bytes", "ship_sent_bytes", "ship_sealed_files"), self._counted, now, strict=True
        ):
            run_metrics.add_to_counter(name, after - before)
        self._counted = now

    def _print_unless_quiet(self, line: str) -> None:
        if not self._quiet:
            print_line(line)
