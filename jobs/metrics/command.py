"""Export the lag of consumer groups and the state of the lake to Prometheus: as a file for node_exporter, or over HTTP.

    commitlake metrics --lake /data/lake --textfile /var/lib/node_exporter/commitlake.prom
    commitlake metrics --lake /data/lake --listen 127.0.0.1:5557

Reads what 'commitlake lag' reads, and the small tables of the lake; jobs/metrics/lag_families.py,
traffic_families.py and archive_families.py list the metrics. It never starts Spark. Exit codes: 0, also if it is
stopped by a signal; 2 for a wrong lake, store, address or option; 3 if the lag of a store is unknown (with --textfile,
the file has the known metrics).
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Sequence
from pathlib import Path

from commitlake.jobs.cli.command import JobError, job_parser, run_job
from commitlake.jobs.cli.durations import parse_duration
from commitlake.jobs.cli.names import warn
from commitlake.jobs.cli.output_files import check_text_file
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.lag.arguments import add_lag_arguments
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.numbers import parse_int

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


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the job's arguments."""
    parser = job_parser("metrics", DESCRIPTION, EXAMPLES)
    parser.set_defaults(spark=False)
    add_lag_arguments(parser)
    output = parser.add_mutually_exclusive_group(required=True)
    output.add_argument("--textfile", metavar="FILE", help="write the metrics to this file, and replace it as a whole")
    output.add_argument("--listen", metavar="IP:PORT", help="serve the metrics at http://IP:PORT/metrics")
    parser.add_argument(
        "--cluster",
        default="DefaultCluster",
        metavar="NAME",
        help="value of the label cluster (default: DefaultCluster)",
    )
    interval_help = "with --listen: shortest time between two measurements (default: 15s)"
    parser.add_argument("--min-interval", type=parse_duration, default="15s", metavar="TIME", help=interval_help)
    return parser


def job(arguments: argparse.Namespace) -> ExitCode:
    """Write the metrics once, or serve them."""
    from commitlake.jobs.metrics.measure import Measured

    if arguments.textfile is not None:
        return _write(arguments)
    host, port = _address(arguments.listen)
    Measured.of(arguments)  # fails at once for a wrong lake or store
    return _serve(arguments, host, port)


def _write(arguments: argparse.Namespace) -> ExitCode:
    from prometheus_client import CollectorRegistry, generate_latest

    from commitlake.connectors.whole_files import write_whole
    from commitlake.jobs.metrics.collector import MetricsCollector
    from commitlake.jobs.metrics.measure import Measured

    path = Path(arguments.textfile)
    check_text_file("--textfile", path)
    measured = Measured.of(arguments)
    registry = CollectorRegistry()
    registry.register(MetricsCollector(lambda: measured.families(arguments.cluster), 0))
    with write_whole(path) as file:
        file.write(generate_latest(registry))
    answer = measured.lag
    for sentence in answer.missing:
        warn("commitlake metrics", sentence)
    if not arguments.quiet:
        print_line(f"{path}: the lag of {len({row.group for row in answer.rows if row.group})} groups")
    return ExitCode.DAMAGE if answer.missing else ExitCode.OK


def _serve(arguments: argparse.Namespace, host: str, port: int) -> ExitCode:
    from prometheus_client import CollectorRegistry

    from commitlake.jobs.cli.process import stop_softly
    from commitlake.jobs.metrics.collector import MetricsCollector
    from commitlake.jobs.metrics.measure import Measured
    from commitlake.jobs.metrics.server import MetricsServer, serve

    registry = CollectorRegistry()
    seconds = arguments.min_interval.total_seconds()
    registry.register(MetricsCollector(lambda: Measured.of(arguments).families(arguments.cluster), seconds))
    stop = threading.Event()
    try:
        server = MetricsServer(host, port, registry)
    except OSError as error:
        raise JobError(f"--listen {arguments.listen}: {error.strerror or error}") from None
    thread = serve(server)
    try:
        with stop_softly(stop.set):
            if not arguments.quiet:
                print_line(f"metrics at http://{arguments.listen}/metrics")
            stop.wait()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    return ExitCode.OK


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    number = parse_int(port, 1, 0xFFFF)
    if not host or number is None:
        raise JobError(f"--listen: expected IP:PORT, found {text[:100]!r}")
    return host.removeprefix("[").removesuffix("]"), number


def main(argv: Sequence[str] | None = None) -> int:
    """Run `commitlake metrics`."""
    return run_job(build_parser(), job, argv)
