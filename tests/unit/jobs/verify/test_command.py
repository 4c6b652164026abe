"""Tests of the command `verify`: output, written files, and exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from commitlake.jobs.archive import command as archive
from commitlake.jobs.verify.command import main
from commitlake.schemas.errors import ExitCode
from tests.support.html_pages import assert_self_contained, parse_page
from tests.support.indexed_stores import write_indexed_store
from tests.support.jmq_stores import write_jmq_store
from tests.support.remote_copies import COPY, serve_copies, ship_copy


@pytest.fixture(scope="session")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store for reading only."""
    return write_indexed_store(tmp_path_factory.mktemp("verified") / "broker-a" / "store", 100)


@pytest.fixture
def damaged(intact: Path, tmp_path: Path) -> Path:
    """A store without an index and a queue, and with a flipped bit in the log."""
    root = shutil.copytree(intact, tmp_path / "broker-b" / "store")
    shutil.rmtree(root / "index")
    shutil.rmtree(root / "consumequeue" / "rare" / "0")
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    return root


LOCAL = ("--local", "--processes", "1")


def test_an_intact_store_ends_with_exit_code_0(intact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(intact), *LOCAL]) == ExitCode.OK
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "records: 100;" in printed.err
    assert "1 store: sound, nothing found" in printed.err


def test_a_damaged_store_ends_with_exit_code_3_and_advice(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(damaged), *LOCAL, "--full"]) == ExitCode.DAMAGE
    printed = capsys.readouterr()
    for fact in (
        "Damage: Log bad crc",
        "Repairable: Queue missing",
        "Info: Index absent",
        "store broker-b, commitlog/",
    ):
        assert fact in printed.out
    for code in ("log_bad_crc", "queue_missing", "index_absent"):
        assert code in printed.out
    assert "What to do:" in printed.out
    assert "1 damage, 1 repairable, 1 info" in printed.err


def test_informational_findings_end_with_exit_code_0(intact: Path, tmp_path: Path) -> None:
    root = shutil.copytree(intact, tmp_path / "store")
    (root / "abort").touch()
    assert main([str(root), *LOCAL, "--quiet"]) == ExitCode.OK


def test_the_json_has_every_finding_with_its_place(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(damaged), *LOCAL, "--output", "json"])
    (store,) = json.loads(capsys.readouterr().out)["rows"]
    assert store["broker"] == "broker-b"
    assert store["counts"] == {"log_bad_crc": 1, "queue_missing": 1, "index_absent": 1}
    finding = store["findings"][0]
    assert (finding["code"], finding["severity"]) == ("log_bad_crc", "damage")
    assert finding["file"] == f"commitlog/{0:020d}"
    assert finding["physical_offset"] == 0


def test_the_page_is_self_contained_and_escapes_names(damaged: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    (damaged / "commitlog" / "<script>").touch()
    main([str(damaged), *LOCAL, "--html", str(page), "--quiet"])
    text = page.read_text()
    assert "log_bad_crc" in text
    assert "&lt;script&gt;" in text
    assert_self_contained(text)
    assert len(parse_page(text).all("script")) == 1


def test_several_stores_have_separate_rows(intact: Path, damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"{intact},{damaged}", *LOCAL, "--output", "json"]) == ExitCode.DAMAGE
    first, second = json.loads(capsys.readouterr().out)["rows"]
    assert (first["broker"], first["findings"]) == ("broker-a", [])
    assert second["broker"] == "broker-b"


def test_findings_are_bounded_and_counted(intact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = shutil.copytree(intact, tmp_path / "store")
    for path in (each for each in (root / "consumequeue" / "topic-1").rglob("0*") if each.is_file()):
        path.write_bytes(bytes(path.stat().st_size))
    main([str(root), *LOCAL, "--output", "json", "--findings", "2"])
    (store,) = json.loads(capsys.readouterr().out)["rows"]
    assert store["counts"]["queue_missing_entry"] > 2
    assert [each["code"] for each in store["findings"]] == ["queue_missing_entry"] * 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["/nowhere", "--local"], "does not exist"),
        (["{store}", "--local", "--lake", "/lake"], "/lake is not a lake"),
    ],
)
def test_wrong_usage_is_reported(
    intact: Path, arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([each.replace("{store}", str(intact)) for each in arguments]) == ExitCode.USAGE
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--delay-levels=soon", "--findings=0", "--processes=x"])
def test_a_wrong_value_is_refused(intact: Path, option: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(intact), option])
    assert ended.value.code == ExitCode.USAGE


def test_a_jmq_store_is_found_by_its_journal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_jmq_store(tmp_path / "broker-j" / "store", 100)
    assert main([str(root), *LOCAL]) == ExitCode.OK
    assert "records: 100;" in capsys.readouterr().err
    shutil.rmtree(root / "queue" / "rare")
    assert main([str(root), *LOCAL, "--output", "json"]) == ExitCode.DAMAGE
    (store,) = json.loads(capsys.readouterr().out)["rows"]
    assert (store["broker"], set(store["counts"])) == ("broker-j", {"queue_missing"})


def test_a_folder_with_two_layouts_needs_the_layout_option(
    intact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = shutil.copytree(intact, tmp_path / "both" / "store")
    write_jmq_store(root / "jmq", 40)
    shutil.copytree(root / "jmq" / "journal", root / "journal")
    shutil.rmtree(root / "jmq")
    assert main([str(root), *LOCAL]) == ExitCode.USAGE
    assert "--layout journal" in capsys.readouterr().err
    assert main([str(root), *LOCAL, "--layout", "commitlog"]) == ExitCode.OK
    assert main([str(root), *LOCAL, "--layout", "journal", "--quiet"]) == ExitCode.DAMAGE


def test_a_copy_is_compared_with_the_lake(
    intact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_copies(tmp_path / "remote", monkeypatch)
    ship_copy(intact, tmp_path / "remote")
    lake = str(tmp_path / "lake")
    assert archive.main(["--store", COPY, "--lake", lake, "--local", "--quiet"]) == ExitCode.OK
    with_lake = [COPY, *LOCAL, "--lake", lake, "--output", "json"]
    for is_changed in (False, True):
        if is_changed:
            DeltaTable(f"{lake}/messages").delete("topic = 'rare'")
        capsys.readouterr()
        assert main(with_lake) == (ExitCode.DAMAGE if is_changed else ExitCode.OK)
        (store,) = json.loads(capsys.readouterr().out)["rows"]
        assert (store["broker"], store["root"]) == ("broker-a", COPY)
        assert set(store["counts"]) == {"index_not_copied"} | ({"lake_missing"} if is_changed else set())


def test_an_endpoint_needs_a_place_in_an_object_store(intact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(intact), *LOCAL, "--s3-endpoint", "http://127.0.0.1:9"]) == ExitCode.USAGE
    assert "--s3-endpoint has no effect without --lake" in capsys.readouterr().err
