"""Tests of the file of a job's page, the page of a failed job, and the history of runs on both."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.cli.command import ErrorMessageAndHint, JobError
from commitlake.jobs.cli.process import OutputError
from commitlake.jobs.report.html_blocks import blocks_html
from commitlake.jobs.report.html_page import render_page
from commitlake.jobs.report.page_file import (
    PageFile,
    check_page_file,
    failure_report,
    join_names,
    left_out_text,
    period_text,
    write_page_on_failure,
)
from commitlake.jobs.report.run_history import RunHistory, history_section, read_run_history, seconds_text
from commitlake.pipelines.archive.past_runs import MAX_RUNS, PastRun
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.report import Kind, Report, Verdict
from tests.support.html_pages import assert_self_contained, parse_page, table_of
from tests.support.lakes import GrowingLake, shop_messages

NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)
HOSTILE = "</h1><script>alert('x')</script>\u202e"
FACTS = [("Lake", "/data/lake")]
GOOD = Report("Audit", Verdict(Kind.GOOD, "No differences"), [], [])


def test_the_page_of_a_failed_job_has_the_error_and_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("yesterday's success")
    with pytest.raises(JobError), write_page_on_failure(check_page_file(path), "audit", "Audit", FACTS):
        raise JobError("the lake is gone", "Bring it back")
    root = parse_page(path.read_text())
    assert root.all("h1")[0].text == "Failed: the lake is gone"
    assert "What to do: Bring it back" in root.text
    assert "Exit code2, wrong usage, path or lake" in root.text
    assert "/data/lake" in root.text
    assert root.of_class("verdict")[0].attributes["class"] == "verdict critical"


def test_the_page_states_that_earlier_runs_could_not_be_read(tmp_path: Path) -> None:
    error = ErrorMessageAndHint("something", exit_code=ExitCode.DAMAGE)
    text = render_page(failure_report("audit", "Audit", FACTS, error, Lake(str(tmp_path / "nowhere"))))
    assert_self_contained(text)
    assert "Earlier runs could not be read" in parse_page(text).by_id("runs").text


def test_a_long_error_is_cut_and_escaped() -> None:
    error = ErrorMessageAndHint("\n".join([HOSTILE * 100] * 1000))
    text = render_page(failure_report("audit", "Audit", [], error))
    assert len(text) < 500_000
    root = parse_page(text)
    assert len(root.all("script")) == 1
    assert "960 more lines are left out of this page." in root.text
    assert root.all("h1")[0].text.endswith("…")


def fail(file: PageFile, error: Exception, shown: tuple[type[Exception], ...] = ()) -> None:
    """Write a page, and raise an error."""
    with write_page_on_failure(file, "audit", "Audit", [], shown_errors=shown):
        file.write(GOOD)
        raise error


def test_a_page_that_already_shows_the_error_is_kept(tmp_path: Path) -> None:
    file = PageFile(tmp_path / "page.html")
    for shown, error in (((KeyError,), KeyError("x")), ((), OutputError("closed"))):
        with pytest.raises(type(error)):
            fail(file, error, shown)
        assert "No differences" in file.path.read_text()


def test_a_closed_standard_output_writes_no_page_of_a_failure(tmp_path: Path) -> None:
    file = PageFile(tmp_path / "page.html")
    with pytest.raises(OutputError), write_page_on_failure(file, "audit", "Audit", []):
        raise OutputError("closed")
    assert not file.path.exists()


def test_an_error_after_the_page_of_an_earlier_run_replaces_it(tmp_path: Path) -> None:
    file = PageFile(tmp_path / "page.html")
    with pytest.raises(ValueError, match="no"):
        fail(file, ValueError("no"))
    assert "Failed: ValueError: no" in file.path.read_text()


def test_an_interrupt_or_a_job_without_a_page_writes_no_page(tmp_path: Path) -> None:
    file = PageFile(tmp_path / "page.html")
    with pytest.raises(KeyboardInterrupt), write_page_on_failure(file, "audit", "Audit", []):
        raise KeyboardInterrupt
    with pytest.raises(JobError), write_page_on_failure(None, "audit", "Audit", []):
        raise JobError("x")
    assert list(tmp_path.iterdir()) == []


def test_the_error_of_the_job_is_raised_if_its_page_cannot_be_written(tmp_path: Path) -> None:
    file = PageFile(tmp_path / "gone" / "page.html")
    with pytest.raises(JobError, match="the lake"), write_page_on_failure(file, "audit", "Audit", []):
        raise JobError("the lake is gone")


def test_periods_and_names_are_formatted() -> None:
    hour = datetime.timedelta(hours=1)
    assert period_text(NOON, NOON + hour) == "2026-11-20 12:00:00 to 2026-11-20 13:00:00 UTC"
    assert period_text(None, NOON) == "the beginning to 2026-11-20 12:00:00 UTC"
    assert period_text(NOON, None) == "2026-11-20 12:00:00 to the end"
    assert period_text(None, None) == "no message has a time"
    assert join_names(["a", "b"]) == "a, b"
    assert join_names([str(number) for number in range(2000)]).endswith("11 and 1,988 more")


def test_the_history_has_the_numbers_of_the_runs() -> None:
    runs = [
        PastRun("this", NOON, 3, 75.0, 2, 1200, 5 << 20, 4, 1, 2),
        PastRun("two", NOON, None, unmet=1, is_stopped=True),
        PastRun("one", NOON, 1, messages=10, unmet=0, is_recovered=True),
        PastRun("zero", NOON, 0, messages=10),
    ]
    rows = table_of(parse_page(blocks_html(history_section(RunHistory(runs), "this").blocks)))[1:]
    assert rows == [
        ["3 (this run)", "2026-11-20 12:00:00", "✕loss or damage", "1,200", "5.0 MiB", "4", "1", "2", "1.2 min"],
        ["stopped", "2026-11-20 12:00:00", "✕stopped", "0", "0 B", "0", "0", "1", ""],
        ["1", "2026-11-20 12:00:00", "✓sound finished by a later run", "10", "0 B", "0", "0", "0", ""],
        ["0", "2026-11-20 12:00:00", "✓archived", "10", "0 B", "0", "0", "not judged", ""],
    ]


def test_short_times_have_one_decimal() -> None:
    assert [seconds_text(seconds) for seconds in (0.04, 9.94, 12.3, 75.0, 5400)] == [
        "0.0 s", "9.9 s", "12 s", "1.2 min", "1.5 h"
    ]  # fmt: skip


def test_the_heading_of_a_history_states_whether_it_is_complete() -> None:
    runs = [PastRun(str(number), NOON, number) for number in range(MAX_RUNS)]
    assert (
        f"The newest {MAX_RUNS} archive runs" in parse_page(blocks_html(history_section(RunHistory(runs)).blocks)).text
    )
    assert "All archive runs" in parse_page(blocks_html(history_section(RunHistory(runs[1:])).blocks)).text
    assert "No archive run" in parse_page(blocks_html(history_section(RunHistory()).blocks)).text


def test_an_unreadable_history_has_the_reason(tmp_path: Path) -> None:
    assert "does not exist" in read_run_history(Lake(str(tmp_path / "nowhere"))).problem


def lose_data(table: Path) -> None:
    """Delete the data files of a table."""
    for path in table.glob("*.parquet"):
        path.unlink()


def cut_data(table: Path) -> None:
    """Cut the data files of a table."""
    for path in table.glob("*.parquet"):
        path.write_bytes(path.read_bytes()[:40])


def change_log(table: Path) -> None:
    """Replace an entry of a table's log by another text."""
    max((table / "_delta_log").glob("*.json")).write_text("{no json")


def lose_log(table: Path) -> None:
    """Delete a table's log."""
    shutil.rmtree(table / "_delta_log")


@pytest.mark.parametrize("damage", [lose_data, cut_data, change_log, lose_log])
def test_a_damaged_table_of_runs_is_reported_and_does_not_hide_the_error(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(3))
    growing.archive()
    damage(Path(growing.lake.uri("archive_runs")))
    file = PageFile(tmp_path / "page.html")
    with pytest.raises(JobError, match="first"), write_page_on_failure(file, "audit", "Audit", [], growing.lake):
        raise JobError("the first error")
    assert "Earlier runs could not be read" in parse_page(file.path.read_text()).by_id("runs").text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (-3, ""),
        (0, ""),
        (1, "1 more row is left out of this page."),
        (1203, "1,203 more rows are left out of this page."),
    ],
)
def test_a_page_says_how_much_it_leaves_out(count: int, text: str) -> None:
    assert left_out_text(count, "row") == text
