"""Export the lag of consumer groups and the state of the lake to Prometheus: as a file for node_exporter, or over HTTP.

    commitlake metrics --lake /data/lake --textfile /var/lib/node_exporter/commitlake.prom
    commitlake metrics --lake /data/lake --listen 127.0.0.1:5557

Reads what 'commitlake lag' reads, and the small tables of the lake; lag_metrics.py,
traffic_metrics.py and archive_metrics.py list the metrics. It never starts Spark. Exit codes: 0, also if it is
stopped by a signal; 2 for a wrong lake, store, address or option; 3 if the lag of a store is unknown (with --textfile,
the file has the known metrics).
"""

from __future__ import annotations

import datetime
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from commitlake.jobs.arguments.durations import parse_duration
from commitlake.jobs.arguments.similar_names import print_warning
from commitlake.jobs.cli.command import Command, JobError
from commitlake.jobs.cli.options import OneOf, option
from commitlake.jobs.cli.output_files import check_output_file
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.lag.arguments import LagArguments
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.integer_parsing import parse_int

DESCRIPTION = (
    "Export the lag of consumer groups to Prometheus, with the metric names and labels of rocketmq-exporter, so that "
    "panels of its dashboards on lag, offsets and rates work. Unlike the exporter's, figures do not count messages "
    "that a group's filter excludes. For a lake there are also metrics on the traffic of brokers, dead letters, the "
    "age of the archive, and missing parts of the logs. With --textfile the metrics are written once, for "
    "node_exporter; with --listen they are measured when Prometheus asks. conf/examples has a dashboard and alert "
    "rules."
)
EXAMPLES = (
    ("metrics --lake /data/lake --textfile /var/lib/node_exporter/commitlake.prom", "once, for node_exporter"),
    ("metrics --lake /data/lake --listen 127.0.0.1:5557", "serve metrics until stopped"),
    ("metrics --store /data/rocketmq/store --listen 127.0.0.1:5557", "metrics of a store that is not archived"),
)


_OUTPUT = OneOf(required=True)


@dataclass(frozen=True, kw_only=True)
class Metrics(Command, LagArguments):
    """The command `metrics`, which exports the lag of consumer groups and the state of a lake to Prometheus."""

    NAME = "metrics"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES
    DEFAULTS: ClassVar = {"spark": False}

    textfile: str | None = option(
        "write the metrics to this file, and replace it as a whole", metavar="FILE", one_of=_OUTPUT
    )
    listen: str | None = option("serve the metrics at http://IP:PORT/metrics", metavar="IP:PORT", one_of=_OUTPUT)
    cluster: str = option(
        "value of the label cluster (default: DefaultCluster)", default="DefaultCluster", metavar="NAME"
    )
    min_interval: datetime.timedelta = option(
        "with --listen: shortest time between two measurements (default: 15s)",
        parse=parse_duration,
        default=parse_duration("15s"),
        metavar="TIME",
    )

    def run(self) -> ExitCode:
        """Write the metrics to a file once, or serve them over HTTP until stopped."""
        from commitlake.jobs.metrics.metrics_collector import LakeAndLagMeasurement

        if self.textfile is not None:
            return _write_metrics_file(self, Path(self.textfile))
        host, port = _parse_address(self.listen or "")
        LakeAndLagMeasurement.measure(self)  # fails at once for a wrong lake or store
        return _serve_metrics(self, host, port)


def _write_metrics_file(command: Metrics, path: Path) -> ExitCode:
    from prometheus_client import CollectorRegistry, generate_latest

    from commitlake.connectors.atomic_files import open_atomic
    from commitlake.jobs.metrics.metrics_collector import LakeAndLagMeasurement, MetricsCollector

    check_output_file("--textfile", path)
    measured = LakeAndLagMeasurement.measure(command)
    registry = CollectorRegistry()
    registry.register(MetricsCollector(lambda: measured.to_metrics(command.cluster), 0))
    with open_atomic(path) as file:
        file.write(generate_latest(registry))
    answer = measured.lag
    for sentence in answer.missing:
        print_warning("commitlake metrics", sentence)
    if not command.quiet:
        print_line(f"{path}: the lag of {len({row.group for row in answer.rows if row.group})} groups")
    return ExitCode.DAMAGE if answer.missing else ExitCode.OK


def _serve_metrics(command: Metrics, host: str, port: int) -> ExitCode:
    from prometheus_client import CollectorRegistry

    from commitlake.jobs.cli.process import call_on_first_signal
    from commitlake.jobs.metrics.metrics_collector import LakeAndLagMeasurement, MetricsCollector
    from commitlake.jobs.metrics.server import MetricsServer, start_server_thread

    registry = CollectorRegistry()
    seconds = command.min_interval.total_seconds()
    registry.register(
        MetricsCollector(lambda: LakeAndLagMeasurement.measure(command).to_metrics(command.cluster), seconds)
    )
    stop = threading.Event()
    try:
        server = MetricsServer(host, port, registry)
    except OSError as error:
        raise JobError(f"--listen {command.listen}: cannot listen there: {error.strerror or error}") from None
    thread = start_server_thread(server)
    try:
        with call_on_first_signal(stop.set):
            if not command.quiet:
                print_line(f"metrics at http://{command.listen}/metrics")
            stop.wait()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    return ExitCode.OK


def _parse_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    number = parse_int(port, 1, 0xFFFF)
    if not host or number is None:
        raise JobError(f"--listen: expected IP:PORT, found {text[:100]!r}")
    return host.removeprefix("[").removesuffix("]"), number


build_parser, main = Metrics.parser, Metrics.main
