"""Runs the suites in a separate process, which loads great_expectations while this process works.

Loading it takes as long as archiving hundreds of thousands of messages, and would block other threads of this process.
The judged tables are also made in that process, so that this process does not need pandas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from commitlake.connectors.runtime.side_process import SideProcess

if TYPE_CHECKING:
    import pyarrow as pa

    from commitlake.pipelines.quality.expectation_input import ProfileJudge, RunFacts
    from commitlake.pipelines.quality.profile_judge import ProfileJudging
    from commitlake.pipelines.quality.report import QualityReport


class JudgeSubprocess:
    """Separate process that checks the message counts of runs by expectation suites, as it loads large packages."""

    def __init__(self) -> None:
        self._process: SideProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.close()

    def start(self) -> SideProcess:
        """Start the process if it is not running, and return it."""
        if self._process is None:
            self._process = SideProcess(_load_judge)
        return self._process

    def begin_judging(self, run_facts: RunFacts) -> ProfileJudge:
        """Start to check the message counts of a run, and drop those of any earlier run.

        Raises:
            CommitLakeError: if the process was killed.
        """
        process = self.start()
        process.call(_begin_judging, run_facts)
        return _JudgingInSubprocess(process)


class _JudgingInSubprocess:
    """Checker of message counts that runs in another process; its errors are raised here."""

    def __init__(self, process: SideProcess) -> None:
        self._process = process

    def add_profile_part(self, profile_part: pa.Table) -> None:
        """Send the counts of some topics to the process, to be checked there."""
        from commitlake.pipelines.quality.profile_columns import serialize_profile  # noqa: PLC0415 (the command loads it later)

        self._process.call(_add_serialized_profile_part, serialize_profile(profile_part))

    def make_report(self) -> QualityReport:
        """Return the results of the expectations for all parts that were added."""
        return self._process.call(_report_results)


_judging: ProfileJudging | None = None
"""State of the judging process."""


def _load_judge() -> None:
    from commitlake.pipelines.quality.great_expectations_loading import load_ignoring_errors, skip_unused_packages  # noqa: PLC0415 (not in the parent)

    with skip_unused_packages():
        load_ignoring_errors()


def _begin_judging(run_facts: RunFacts) -> None:
    from commitlake.pipelines.quality.profile_judge import ProfileJudging  # noqa: PLC0415 (likewise)

    global _judging  # noqa: PLW0603 (one profile is judged at a time)
    _judging = ProfileJudging(facts=run_facts)


def _add_serialized_profile_part(serialized_part: bytes) -> None:
    from commitlake.pipelines.quality.profile_columns import parse_profile  # noqa: PLC0415 (likewise)

    _current_judging().add_profile_part(parse_profile(serialized_part))


def _report_results() -> QualityReport:
    return _current_judging().make_report()


def _current_judging() -> ProfileJudging:
    assert _judging is not None  # `JudgeSubprocess.begin_judging` comes first
    return _judging
