"""Opens the sides of an audit: DataFrames if the runner is Spark, else tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.runtime.local_runner import ProcessRunner, ThreadRunner
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.audit.erased import read_erased
from commitlake.pipelines.audit.local.sides import local_sides
from commitlake.pipelines.audit.moment import Moment
from commitlake.pipelines.audit.sides import Sides
from commitlake.pipelines.audit.span import AuditSpan


@contextmanager
def open_sides(runner: Runner, lake: Lake, bodies: str, span: AuditSpan, moment: Moment) -> Iterator[Sides]:
    """Open the sides of a lake.

    Args:
        runner: runs the audit; a Spark session must have the sources of broker stores registered.
        bodies: root folder of the packs.
    """
    erased = read_erased(lake, moment)
    if isinstance(runner, ThreadRunner | ProcessRunner):
        with local_sides(runner, lake, bodies, span, moment, erased) as sides:
            yield sides
        return
    from commitlake.connectors.runtime.spark_runner import SparkRunner  # noqa: PLC0415 (only where Spark is wanted)
    from commitlake.pipelines.audit.spark_sides import SparkSides  # noqa: PLC0415

    assert isinstance(runner, SparkRunner)
    yield SparkSides(lake, bodies, span, moment, erased, runner.session)
