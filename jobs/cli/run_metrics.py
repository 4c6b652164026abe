"""`--metrics-file`: the figures of a run as Prometheus text, for node_exporter's textfile collector.

    commitlake_run_duration_seconds             of the last run
    commitlake_run_exit_code                    of the last run
    commitlake_run_end_timestamp_seconds        when the last run ended
    commitlake_run_last_success_timestamp_seconds   when a run last ended with exit code 0
    commitlake_run_peak_memory_bytes            largest resident memory of the process, or of one below it
    commitlake_runs_total{exit_code}            runs since the file was created
    commitlake_archive_…_total                  data of archive runs since the file was created
    commitlake_ship_…_total                     data of shipping agents since the file was created

All have the label `command`. A file is replaced as a whole. Counters continue from the values in the existing file, so
they never decrease, and equal runs are visible. Use one file per job. A file that cannot be parsed is ignored.
"""

from __future__ import annotations

import math
import resource
import sys
import time
from collections import Counter
from pathlib import Path

from commitlake.jobs.cli.output_files import check_output_file
from commitlake.schemas.errors import ExitCode

_MAX_FILE_BYTES = 1 << 20
_SUCCESS = "commitlake_run_last_success_timestamp_seconds"
_RUNS = "commitlake_runs"
COUNTERS = {
    "archive_messages": "Messages that archive runs committed.",
    "archive_log_bytes": "Bytes of log that archive runs committed.",
    "archive_quarantined_ranges": "Ranges of log that archive runs could not read.",
    "archive_gaps": "Ranges of log that were gone before archive runs could read them.",
    "ship_bytes": "Bytes of stores that were shipped.",
    "ship_sent_bytes": "Bytes that were sent to targets, with those that were sent again.",
    "ship_sealed_files": "Files that were shipped completely.",
}
"""Counters that a job may add to, with their help texts; the metric is `commitlake_NAME_total`."""

_counted: Counter[str] = Counter()


def add_to_counter(name: str, amount: int) -> None:
    """Add an amount to a counter in this run's metrics.

    Args:
        name: one of `COUNTERS`.
        amount: the amount to add.
    """
    if name not in COUNTERS:
        raise KeyError(name)
    _counted[name] += amount


class RunMetrics:
    """The metrics of a run, which begins when the object is created.

    Args:
        path: the file.
        command: name of the job.

    Raises:
        OutputFileError: if it cannot be written, or is not a text.
    """

    def __init__(self, path: Path, command: str) -> None:
        check_output_file("--metrics-file", path)
        self._path = path
        self._command = command
        self._started = time.monotonic()
        _counted.clear()

    def write(self, exit_code: int) -> None:
        """Write the metrics to the file.

        Raises:
            OSError: if it cannot be written.
        """
        from prometheus_client import CollectorRegistry, Gauge, generate_latest
        from prometheus_client.core import CounterMetricFamily
        from prometheus_client.registry import Collector

        from commitlake.connectors.atomic_files import open_atomic

        before = _read_earlier_samples(self._path, self._command)
        registry = CollectorRegistry()
        now = time.time()
        gauges = {
            "commitlake_run_duration_seconds": ("Duration of the last run.", time.monotonic() - self._started),
            "commitlake_run_exit_code": ("Exit code of the last run.", exit_code),
            "commitlake_run_end_timestamp_seconds": ("Time at which the last run ended.", now),
            "commitlake_run_peak_memory_bytes": ("Largest resident memory of one process.", _peak_memory_bytes()),
        }
        success = now if exit_code == ExitCode.OK else before.get((_SUCCESS, ""))
        if success is not None:
            gauges[_SUCCESS] = ("Time at which a run last ended with exit code 0.", success)
        for name, (text, value) in gauges.items():
            Gauge(name, text, ["command"], registry=registry).labels(self._command).set(value)

        runs = {code: value for (name, code), value in before.items() if name == f"{_RUNS}_total"}
        runs[str(exit_code)] = runs.get(str(exit_code), 0) + 1
        families = [CounterMetricFamily(_RUNS, "Runs, by exit code.", labels=["command", "exit_code"])]
        for code, value in sorted(runs.items()):
            families[0].add_metric([self._command, code], value)
        for name, text in COUNTERS.items():
            total = before.get((f"commitlake_{name}_total", ""), 0.0) + _counted[name]
            if name.startswith(f"{self._command}_"):
                family = CounterMetricFamily(f"commitlake_{name}", text, labels=["command"])
                family.add_metric([self._command], total)
                families.append(family)

        class _Counters(Collector):
            def collect(self) -> list[CounterMetricFamily]:
                return families

        registry.register(_Counters())
        with open_atomic(self._path) as file:
            file.write(generate_latest(registry))


def _read_earlier_samples(path: Path, command: str) -> dict[tuple[str, str], float]:
    """Return a command's samples in a metrics file, by name and exit code; empty if the file is not readable."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        with path.open("rb") as file:
            text = file.read(_MAX_FILE_BYTES).decode()
        return {
            (sample.name, sample.labels.get("exit_code", "")): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.labels.get("command") == command and math.isfinite(sample.value) and sample.value >= 0
        }
    except (OSError, ValueError, IndexError, KeyError):
        return {}


def _peak_memory_bytes() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    own, below = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return max(own, below) * unit
