"""Loads what the process that judges an archive run loads, for the server that forks such processes in tests.

Each archive run by the command starts one, and would spend two seconds of a processor on it.
"""

from __future__ import annotations

from commitlake.pipelines.quality.judge_process import _load

_load()
