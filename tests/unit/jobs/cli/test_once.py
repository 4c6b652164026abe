"""Tests of options that take one value: a second value is refused, not silently used."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from commitlake.jobs.archive.command import main as archive
from commitlake.jobs.dump.command import main as dump
from commitlake.jobs.lineage.command import main as lineage
from commitlake.jobs.offsets.command import main as offsets
from commitlake.jobs.query.command import main as query
from commitlake.jobs.restore.command import main as restore
from commitlake.jobs.tps.command import main as tps

Main = Callable[[Sequence[str]], int]


@pytest.mark.parametrize(
    ("main", "option"),
    [
        (query, "--queue"),
        (query, "--id"),
        (tps, "--queue"),
        (lineage, "--key"),
        (lineage, "--id"),
        (dump, "--queue"),
        (offsets, "--group"),
        (restore, "--broker"),
        (archive, "--broker"),
    ],
)
def test_a_second_value_is_refused(main: Main, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--lake", "lake", option, "1", option, "2"])
    assert f"argument {option}: expected one value, but it is given more than once" in capsys.readouterr().err
