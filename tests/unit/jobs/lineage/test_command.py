"""Tests of `commitlake lineage`: each output format, refused options, and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commitlake.jobs.lineage.command import main
from commitlake.schemas.errors import ExitCode
from tests.support.lineage_lakes import KEY, at, edge, make_lake, order_lake, record

LINKED = [record(1, 0, "orders", keys=["k"]), record(2, 9, "payments", keys=["k"])]
LINKED_TOPICS = ("--topics", "--from", "2026-11-20", "--to", "2026-11-21")


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return order_lake(tmp_path).root


def test_a_tree_is_the_default(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lake", lake, "--key", KEY]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert "14:00:00.000           ● sent to orders" in out
    assert "Outcomes" in out
    assert "• the first retry of billing, 14:00:10.500: consumed by billing at the second try" in out
    assert err.startswith("5 steps, 3 outcomes (")


def test_json_has_its_version_and_every_detail(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lake", lake, "--key", KEY, "--format", "json", "--quiet"]) == ExitCode.OK
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert (document["version"], document["as_of"], err) == (1, "2026-11-20T15:00:00.000Z", "")
    assert document["steps"][0]["record"]["properties"] == {"KEYS": KEY, "UNIQ_KEY": "7F00A1"}
    assert document["steps"][1]["consumption"] == {
        "group": "billing", "host": "10.0.0.9", "attempt": 1, "cost_ms": 36, "succeeded": False, "outcome": "exception",
    }  # fmt: skip
    assert document["edges"][1]["gap_ms"] == 500
    assert {each["proof"] for each in document["outcomes"]} == {"trace", "offsets"}


def test_tables_and_diagrams_are_printed(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lake", lake, "--key", KEY, "--format", "table", "--quiet"]) == ExitCode.OK
    assert "2026-11-20T14:00:10.500Z    10 s" in capsys.readouterr().out
    assert main(["--lake", lake, "--key", KEY, "--format", "mermaid", "--quiet"]) == ExitCode.OK
    assert capsys.readouterr().out.startswith("flowchart TD\n")


def test_a_page_is_written_in_addition_to_the_output(
    lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "order.html"
    assert main(["--lake", lake, "--key", KEY, "--html", str(page), "--quiet"]) == ExitCode.OK
    assert "consumed by billing at the second try" in page.read_text()
    assert "sent to orders" in capsys.readouterr().out


def test_masks_apply_to_each_format(
    lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMMITLAKE_MASK_KEY", "secret")
    page = tmp_path / "order.html"
    for form in ("tree", "table", "json", "mermaid"):
        given = ["--lake", lake, "--key", KEY, "--format", form, "--mask", "keys=hash", "--html", str(page)]
        assert main(given) == ExitCode.OK
        out, err = capsys.readouterr()
        assert KEY not in out + err
        assert KEY not in page.read_text()


def test_a_key_without_a_message_is_reported_and_not_an_error(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lake", lake, "--key", "order-1"]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("no message in the lake has key order-1 (")


def test_hostile_texts_cannot_command_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "a\x1b[31m\u202eb\nc"
    sent = record(1000, 0, hostile, tags=hostile, unique_key=hostile, keys=[hostile], kind="normal")
    rows = edge("consumed", sent, consumer_group=hostile * 100, evidence_broker="a", client_host=hostile)
    lake = make_lake(tmp_path, [sent], rows).root
    for form in ("tree", "table", "json", "mermaid"):
        assert main(["--lake", lake, "--key", hostile, "--format", form]) == ExitCode.OK
        out, err = capsys.readouterr()
        assert "1 step" in err or "2 steps" in err
        assert not {"\x1b", "\u202e"} & set(out + err)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "one of --key, --id, --offset and --topics"),
        (["--key", "a", "--id", "b"], "found --key and --id"),
        (["--keys-file", "a", "--id", "b"], "found --id and --keys-file"),
        (["--keys-file", "/no/such/file"], "--keys-file /no/such/file: the file cannot be read"),
        (
            ["--keys-file", "a", "--html", "a.html"],
            "--html shows only one history, and cannot be used with --keys-file",
        ),
        (["--key", "a", "--depth", "-1"], "depth: expected 0 or more"),
        (["--key", "a", "--from", "2026-11-21", "--to", "2026-11-20"], "is not before"),
        (["--key", "a", "--body"], "--body needs one of --format json and --html"),
        (["--key", "a", "--follow", "--format", "json"], "--follow and --format json cannot be used together"),
        (["--key", "a", "--follow-for", "1m"], "--follow-for needs --follow"),
        (["--key", "a", "--mask", "keys=hash"], "COMMITLAKE_MASK_KEY"),
        (["--key", "a", "--mask", "nonsense"], "mask"),
        (["--topics"], "--topics needs --from"),
        (["--topics", "--from", "-1d", "--to", "now", "--depth", "1"], "--depth has no effect with --topics"),
        (["--key", "a", "--openlineage", "ftp://x"], "expected http"),
        (["--key", "a", "--openlineage", "/no/such/folder/file"], "in an existing folder"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    lake: str, arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--lake", lake, *arguments]) == ExitCode.USAGE
    assert expected in capsys.readouterr().err


@pytest.mark.some_cases(2)
@pytest.mark.parametrize("form", ["tree", "table", "json", "mermaid"])
def test_keys_of_a_file_have_the_output_of_each_key(
    lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    keys = [KEY, "order-9", "no such key"]
    file = tmp_path / "keys.txt"
    file.write_text("\n".join([*keys, KEY]))
    single = []
    for key in keys:
        assert main(["--lake", lake, "--key", key, "--format", form]) == ExitCode.OK
        out, err = capsys.readouterr()
        single.append((out, [line.partition(" (")[0] for line in err.splitlines()]))
    several = [part for key in keys for part in ("--key", key)]
    for given in (["--keys-file", str(file)], ["--key", KEY, "--keys-file", str(file)], several):
        assert main(["--lake", lake, *given, "--format", form]) == ExitCode.OK
        out, err = capsys.readouterr()
        assert out == "\n".join(text for text, _ in single)
        assert [line.partition(" (")[0] for line in err.splitlines()] == [line for _, lines in single for line in lines]


def test_a_missing_lake_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lake", str(tmp_path / "none"), "--key", "a"]) == ExitCode.USAGE
    assert "does not exist" in capsys.readouterr().err


def test_an_unknown_property_is_reported_with_the_nearest(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lake", lake, "--key", KEY, "--related-by", "REAL_TOPICS"]) == ExitCode.OK
    assert "Did you mean 'REAL_TOPIC'?" in capsys.readouterr().err


def test_following_ends_when_each_outcome_is_final(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dead = record(1000, 0, "%DLQ%billing", reconsume_times=3)
    lake = make_lake(tmp_path, [dead]).root
    assert main(["--lake", lake, "--key", KEY, "--follow"]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert out.splitlines()[0].startswith("2026-11-20 14:00:00  dead letter of billing")
    assert "now: dead letter of billing since 14:00:00, not redriven" in out
    assert "each outcome is final" in err


def test_topics_are_shown_in_each_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = make_lake(tmp_path, LINKED).root
    asked = ["--lake", lake, *LINKED_TOPICS]
    page = tmp_path / "topics.html"
    assert main([*asked, "--html", str(page)]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert out.splitlines()[2].split() == ["orders", "payments", "1", "1", "9", "s", "9", "s"]
    assert "2 topics with keys, 1 link" in err
    assert "Most keys pass from orders to payments" in page.read_text()
    assert main([*asked, "--format", "json", "--quiet"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["links"] == [
        {"from": "orders", "to": "payments", "passes": 1, "keys": 1, "median_ms": 9000, "p95_ms": 9000}
    ]
    assert main([*asked, "--format", "mermaid", "--quiet"]) == ExitCode.OK
    assert 't1 -- "1 pass, median 9 s" --> t2' in capsys.readouterr().out
    empty = [*asked[:4], "2020-01-01", "--to", "2020-01-02", "--format", "mermaid", "--quiet"]
    assert main(empty) == ExitCode.OK
    assert "no key passes" in capsys.readouterr().out


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_the_namespace_of_a_lake_is_a_uri(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "my lake").symlink_to(make_lake(tmp_path, LINKED).root)
    place = f"{scheme}{tmp_path}/my{'%20' if scheme else ' '}lake"
    file = tmp_path / "events.jsonl"
    assert main(["--lake", place, *LINKED_TOPICS, "--openlineage", str(file)]) == ExitCode.OK
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert {event["inputs"][0]["namespace"] for event in events} == {"rocketmq://my%20lake"}


def test_events_are_written_to_a_file(lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "events.jsonl"
    assert main(["--lake", lake, "--key", KEY, "--openlineage", str(file)]) == ExitCode.OK
    assert "8 OpenLineage events to" in capsys.readouterr().err
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert [event["eventType"] for event in events] == ["START", "FAIL", *["START", "COMPLETE"] * 3]
    assert events[0]["inputs"][0]["name"] == "orders"
    assert events[0]["eventTime"] == at(0).isoformat(timespec="milliseconds").replace("+00:00", "Z")
