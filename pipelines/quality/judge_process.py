"""The suites' judgement in a process of its own, which loads great_expectations while this process does other things.

Loading it takes as long as to archive hundreds of thousands of messages, and other threads of one process would wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from commitlake.connectors.runtime.side_process import SideProcess

if TYPE_CHECKING:
    import pandas as pd

    from commitlake.pipelines.quality.judgement import Judgement
    from commitlake.schemas.quality.expectation import Suite


class JudgeProcess:
    """A process that judges frames, for a `with`; it begins to load at once."""

    def __init__(self) -> None:
        self._process = SideProcess(_load)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()

    def judge_frame(self, suites: Sequence[Suite], frame: pd.DataFrame, keys: Sequence[str]) -> list[list[Judgement]]:
        """Judge a frame, as `frame_judge.judge_by_suites` does.

        Raises:
            JudgeError: likewise.
            SideProcessError: if the process was killed.
        """
        return self._process.call(_judge, suites, frame, keys)


def _load() -> None:
    from commitlake.pipelines.quality.loading import load_quietly, spare_packages  # noqa: PLC0415 (not in the parent)

    spare_packages()
    load_quietly()


def _judge(suites: Sequence[Suite], frame: pd.DataFrame, keys: Sequence[str]) -> list[list[Judgement]]:
    from commitlake.pipelines.quality.frame_judge import judge_by_suites  # noqa: PLC0415 (likewise)

    return judge_by_suites(suites, frame, keys)
