"""Tests of the report of verify: numbers of the stores, grouped and decoded findings, bounded size, escaped names."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.printable import escape_line
from commitlake.jobs.report.html_page import render_page
from commitlake.jobs.verify.command import main
from commitlake.jobs.verify.report import MAX_STORES, FindingRemedies, verify_report
from commitlake.pipelines.verify.finding_classes import CLASSES
from commitlake.pipelines.verify.findings import Finding, Findings
from commitlake.pipelines.verify.store_verification import StoreReport
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.report import Kind, Verdict
from tests.support.html_pages import Element, assert_self_contained, parse_page, table_of

HOSTILE = "<script>alert('x')</script>\u202e"


def report(broker: str = "broker-a", **changes: object) -> StoreReport:
    """Return the report of an intact store."""
    given: dict[str, object] = {
        "root": f"/data/{broker}", "segments": 2, "records": 1200, "bytes": 3 << 20, "queues": 12, "index_files": 1,
        "groups": 4, "first_time": 1_795_183_200_000, "last_time": 1_795_183_260_500,
    }  # fmt: skip
    return StoreReport(broker, findings=Findings(), **(given | changes))  # type: ignore[arg-type]


def with_findings(store: StoreReport, code: str, count: int, *kept: Finding) -> StoreReport:
    """Return the same report with findings."""
    store.findings.add_many(code, count, kept)
    return store


def finding(code: str, **given: object) -> Finding:
    """Return a finding of the store broker-a."""
    return Finding(code, "commitlog/00000000000000000000", 4096, 4096, broker="broker-a", **given)  # type: ignore[arg-type]


def commands_of(page: Element) -> list[str]:
    """Return the commands that a page offers for copying."""
    return [each.text for block in page.of_class("command") for each in block.all("code")]


def page_of(*reports: StoreReport) -> Element:
    return parse_page(render_page(verify_report(reports)))


def test_the_page_of_an_intact_store_has_its_numbers() -> None:
    root = page_of(report())
    assert root.all("h1")[0].text == "1 store: sound, nothing found"
    assert root.of_class("verdict")[0].attributes["class"] == "verdict good"
    assert "No damage was found." in root.text
    facts = root.of_class("facts")[0].text
    assert "Broker" + "broker-a" in facts
    assert "2026-11-20 14:00:00.000 to 2026-11-20 14:01:00.500 UTC" in facts
    assert table_of(root.by_id("stores"))[1] == [
        "broker-a /data/broker-a", "✓Sound", "1,200", "3.0 MiB", "12", "0", "0", "0"
    ]  # fmt: skip


def test_findings_of_all_stores_are_grouped_by_class_and_decoded() -> None:
    first = with_findings(
        report(),
        "log_bad_magic",
        140,
        finding("log_bad_magic", found="4F4F4F4F (no record for 5000 bytes)", expected="DAA320A7"),
    )
    other = with_findings(report("broker-b"), "log_bad_magic", 3)
    with_findings(other, "log_time_back", 2, finding("log_time_back", found="1795183200000 ms", expected="later"))
    root = page_of(first, other)
    articles = root.by_id("findings").all("article")
    assert [each.attributes["class"] for each in articles] == ["notice critical", "notice info"]
    assert "Log bad magic · 143 found (broker-a: 140, broker-b: 3)" in articles[0].text
    assert "142 more like this" in articles[0].text
    assert '4F4F4F4F (the text "OOOO") (no record for 5,000 bytes (4.9 KiB))' in articles[0].text
    assert "DAA320A7 (message of RocketMQ)" in articles[0].text
    assert "2026-11-20 14:00:00.000 UTC" in articles[1].text
    assert CLASSES["log_bad_magic"].cause in articles[0].text
    assert root.all("h1")[0].text == "2 stores: not sound, 143 damage, 2 info"


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([], Verdict(Kind.GOOD, "2 stores: sound, nothing found", "Sound")),
        (["index_absent"], Verdict(Kind.INFO, "2 stores: sound, 1,200 info", "Sound")),
        (
            ["queue_missing"],
            Verdict(Kind.WARNING, "2 stores: not sound, 1,200 repairable", "Repairable", ExitCode.DAMAGE),
        ),
        (
            ["index_absent", "log_bad_crc"],
            Verdict(Kind.CRITICAL, "2 stores: not sound, 1,200 damage, 1,200 info", "Damaged", ExitCode.DAMAGE),
        ),
    ],
)
def test_the_worst_finding_decides(codes: list[str], expected: Verdict) -> None:
    store = report()
    for code in codes:
        with_findings(store, code, 1200)
    assert verify_report([store, report("broker-b")]).verdict == expected


def test_the_first_findings_of_each_store_are_shown_at_once() -> None:
    found = [Finding("log_bad_crc", "commitlog", number, broker="broker-a") for number in range(5)]
    first = with_findings(report(), "log_bad_crc", 5, *found)
    other = with_findings(
        report("broker-b"), "log_bad_crc", 1, Finding("log_bad_crc", "commitlog", 9, broker="broker-b")
    )
    (article,) = page_of(first, other).by_id("findings").all("article")
    assert [item.all("dd")[0].text for item in article.all("li")] == [
        *(f"store broker-a, commitlog, byte {number}" for number in range(3)), "store broker-b, commitlog, byte 9"
    ]  # fmt: skip
    assert "2 more like this" in article.text


def test_a_repairable_store_has_the_command_to_repair_it() -> None:
    damaged = with_findings(report(), "log_bad_crc", 1, finding("log_bad_crc", found="1", expected="2"))
    with_findings(damaged, "queue_missing", 1, finding("queue_missing", found="no file", expected="entries"))
    assert commands_of(page_of(damaged)) == [
        "commitlake rebuild /data/broker-a --salvage --out /data/broker-a-salvaged",
        "commitlake rebuild /data/broker-a --in-place",
    ]


def test_what_is_repaired_of_a_copy_in_an_object_store_goes_to_a_folder() -> None:
    damaged = report(root="s3://logs/broker-a")
    with_findings(damaged, "log_bad_crc", 1, finding("log_bad_crc", found="1", expected="2"))
    with_findings(damaged, "queue_missing", 1, finding("queue_missing", found="no file", expected="entries"))
    assert commands_of(page_of(damaged)) == [
        "commitlake rebuild s3://logs/broker-a --salvage --out salvaged",
        "commitlake rebuild s3://logs/broker-a --out rebuilt",
    ]


def test_an_advice_and_its_command_are_one() -> None:
    stores = [with_findings(report(name), "log_wrong_number", 1) for name in ("broker-a", "broker-b")]
    root = parse_page(render_page(verify_report(stores, FindingRemedies(Lake("/nowhere/lake")))))
    assert "What to do: archive it first: commitlake archive. A rebuild would leave it out." in root.text
    assert commands_of(root) == [
        f"commitlake archive --store /data/{name} --broker {name} --lake /nowhere/lake"
        for name in ("broker-a", "broker-b")
    ]
    assert commands_of(page_of(*stores)) == []  # without a lake, the command lacks a place
    assert "archive it first: commitlake archive --store /data/broker-a --lake LAKE." in page_of(*stores).text


def test_no_clean_log_is_offered_for_a_store_that_cannot_be_salvaged() -> None:
    damaged = with_findings(report(can_salvage=False), "log_bad_crc", 1, finding("log_bad_crc"))
    assert commands_of(page_of(damaged)) == []
    assert "JMQ's broker skips what it cannot read" in page_of(damaged).text


def test_options_that_a_rebuild_needs_are_in_its_command() -> None:
    damaged = with_findings(report(), "queue_missing", 1, finding("queue_missing"))
    settings = ["--broker-conf", "/etc/{broker}.conf"]
    root = parse_page(render_page(verify_report([damaged], FindingRemedies(settings=settings))))
    assert commands_of(root) == ["commitlake rebuild /data/broker-a --in-place --broker-conf '/etc/{broker}.conf'"]


def test_the_worst_store_is_first_and_many_are_bounded() -> None:
    stores = [report(f"broker-{number:04d}") for number in range(MAX_STORES + 50)]
    with_findings(stores[-1], "log_bad_crc", 1)
    root = page_of(*stores)
    rows = table_of(root.by_id("stores"))
    assert rows[1][0].startswith(f"broker-{MAX_STORES + 49:04d}")
    assert len(rows) == 1 + MAX_STORES
    assert "50 more stores are left out of this page." in root.text


@pytest.mark.long("names are escaped and lists are bounded by the same code on other pages each time")
def test_hostile_names_are_escaped_and_a_million_findings_are_bounded() -> None:
    def text_of(name: str) -> str:
        store = StoreReport(name, name, Findings(limit=1000))
        kept = [Finding(code, name, 1, 2, name, 3, name, name, name) for code in CLASSES for _ in range(30)]
        for code in CLASSES:
            store.findings.add_many(code, 1_000_000, [each for each in kept if each.code == code])
        return render_page(verify_report([store]))

    plain, hostile = text_of("x"), text_of(HOSTILE)
    assert_self_contained(hostile)
    names = [{one.name for one in parse_page(text).inner} for text in (plain, hostile)]
    assert names[0] - names[1] == {"pre"}  # a command with such a name in it is left out
    assert names[1] <= names[0]
    assert escape_line(HOSTILE) in parse_page(hostile).text
    assert len(text_of(HOSTILE * 100).encode()) < 2_000_000


def test_the_page_of_a_missing_store_has_the_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert main(["/nowhere", "--local", "--html", str(page)]) == 2
    printed = capsys.readouterr().err.partition("error: ")[2].splitlines()[0]
    assert parse_page(page.read_text()).all("h1")[0].text == f"Failed: {printed}"
