"""Imports of the process that checks an archive run's expectations, for the fork server of tests.

Each archive run by the command starts one, whose imports would take two seconds of processor time.
"""

from __future__ import annotations

from commitlake.pipelines.quality.judge_subprocess import _load_judge

_load_judge()
