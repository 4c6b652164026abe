"""Comparisons of figures with targets, and how they are printed."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from tests.benchmarks.report import print_report, write_json
from tests.benchmarks.runs import Figure, Figures, Name, Run
from tests.benchmarks.targets import WORKER_MIB, ratios

GB = 10**9


def figure(*seconds: float, messages: int = 1_000_000, worker_mib: float | None = None) -> Figure:
    notes = {} if worker_mib is None else {WORKER_MIB: worker_mib}
    return Figure([Run(each, GB, messages) for each in seconds], notes)


def test_a_ratio_is_of_medians_and_its_range_of_passes_of_one_round() -> None:
    figures = {
        Name("a", "hop and CRC", 1024): figure(1.0, 2.0, 1.5),
        Name("b", "recovery's check", 1024): figure(4.0, 4.0, 9.0),
    }
    (ratio,) = ratios(figures)
    assert ratio.value == pytest.approx(4.0 / 1.5)
    assert (ratio.least, ratio.most) == (2.0, 6.0)
    assert ratio.target == 2.5
    assert ratio.is_met


def test_smaller_bodies_have_a_higher_target() -> None:
    figures = {Name("a", "hop and CRC", 200): figure(1.0), Name("b", "recovery's check", 200): figure(3.9)}
    (ratio,) = ratios(figures)
    assert ratio.target == 4
    assert not ratio.is_met


def test_archive_is_compared_with_the_sum_of_sparks_write_and_zstd() -> None:
    figures = {
        Name("d", "archive", 1024): figure(3.0),
        Name("f", "rows into Delta", 1024): figure(1.5),
        Name("f", "bodies by zstd", 1024): figure(0.5, messages=0),
    }
    rate, time = ratios(figures)
    assert (rate.unit, rate.is_met) == ("messages/s", True)
    assert rate.value == pytest.approx(1e6 / 3)
    assert (time.value, time.at_most, time.is_met) == (1.5, True, True)


def test_the_journal_target_is_a_quarter_more_time_than_the_commitlog() -> None:
    def target_met(seconds: float) -> bool | None:
        figures = {
            Name("j", "CommitLog, archive", 1024): figure(1.0),
            Name("j", "journal, archive", 1024): figure(seconds),
        }
        (ratio,) = ratios(figures)
        return ratio.is_met

    assert (target_met(1.2), target_met(1.3)) == (True, False)


def test_the_growth_target_is_slightly_above_linear() -> None:
    def growth(large: float) -> bool | None:
        figures = {Name("g", "archive", 1024, 1): figure(1.0), Name("g", "archive", 1024, 4): figure(large)}
        (ratio,) = ratios(figures)
        assert ratio.target == pytest.approx(4.3)
        return ratio.is_met

    assert growth(4.2)
    assert not growth(4.4)


def test_the_highest_memory_of_all_workers_counts() -> None:
    figures = {
        Name("g", "archive", 1024, 1): figure(1.0, worker_mib=100),
        Name("g", "archive", 1024, 4): figure(4.0, worker_mib=700),
    }
    *_, memory = ratios(figures)
    assert (memory.value, memory.is_met) == (700, False)


def test_the_ratio_to_the_page_cache_has_no_target() -> None:
    figures = {
        Name("a", "page-cache read", 1024): figure(0.1, messages=0),
        Name("c", "read, no bodies", 1024): figure(0.5),
    }
    _, share = ratios(figures)
    assert share.value == pytest.approx(0.2)
    assert (share.target, share.is_met) == (None, None)


def test_figures_that_were_not_measured_are_not_compared() -> None:
    assert ratios({Name("a", "hop and CRC", 1024): figure(1.0)}) == []


@pytest.fixture
def figures() -> Figures:
    return {
        Name("a", "memcpy", 1024): figure(0.1, 0.3, 0.2, messages=0),
        Name("c", "read, no bodies", 1024): figure(0.5),
        Name("d", "archive", 1024): figure(4.0, worker_mib=123.4),
    }


def test_tables_show_rates_at_the_median_and_whether_targets_are_met(figures: Figures) -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    print_report(console, {"cpu": "AMD EPYC", "cores": 2}, figures, ratios(figures))
    lines = console.export_text().splitlines()
    assert lines[0] == "AMD EPYC, cores 2"
    assert lines[1] == "bodies of 1,024: 0.93 GiB, 1,000,000 messages; passes: 3"
    (memcpy,) = (line.split() for line in lines if "memcpy" in line)
    assert {"0.200", "0.100", "0.300", "5.00"} <= set(memcpy)
    (met,) = (line for line in lines if "Spark reads, no bodies" in line)
    assert "yes" in met
    (missed,) = (line for line in lines if ">= 300,000" in line)
    assert "no" in missed.split()


def test_json_has_all_passes(tmp_path: Path, figures: Figures) -> None:
    write_json(tmp_path / "out.json", {"cpu": "AMD EPYC"}, figures, ratios(figures))
    written = json.loads((tmp_path / "out.json").read_text())
    assert [run["seconds"] for run in written["figures"][0]["runs"]] == [0.1, 0.3, 0.2]
    assert written["figures"][2]["notes"] == {WORKER_MIB: 123.4}
    assert [ratio["is_met"] for ratio in written["ratios"]] == [True, False, True]
