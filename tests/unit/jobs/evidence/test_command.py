"""Tests of evidence: keys, and chains written by archive, audit and erase."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path

import pytest
from deltalake import DeltaTable

from commitlake.connectors.lake.committer import commit_with_transaction
from commitlake.connectors.lake.delta_log.newest_versions import NOTES
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.jobs.archive import command as archive
from commitlake.jobs.audit import command as audit
from commitlake.jobs.erase import command as erase
from commitlake.jobs.evidence import command as evidence
from commitlake.jobs.maintain import command as maintain
from commitlake.pipelines.evidence.chain import APPLICATION_ID, read_documents
from commitlake.pipelines.evidence.documents import Document, parse_document
from commitlake.schemas.errors import ExitCode
from tests.support.erased_lakes import KEY, shop_messages, write_lake
from tests.support.lakes import GrowingLake


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private key, with its public key in the same folder."""
    path = tmp_path_factory.mktemp("key") / "evidence.pem"
    assert evidence.main(["key", "--out", str(path)]) == ExitCode.OK
    return path


def run_archive(growing: GrowingLake, key: Path) -> int:
    arguments = ["--store", str(growing.store), "--lake", growing.lake.root, "--local", "--quiet"]
    return archive.main([*arguments, "--evidence-key", str(key), "--on-gap", "record"])


@pytest.fixture
def growing(signed: GrowingLake, tmp_path: Path) -> GrowingLake:
    """A copy of the lake with evidence, to be changed."""
    return signed.copy_to(tmp_path)


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory, key: Path) -> GrowingLake:
    """A lake with evidence of two archive runs, an audit and an erasure that is purged."""
    growing = GrowingLake(tmp_path_factory.mktemp("signed"))
    for run in range(2):
        growing.write(shop_messages(50, first=50 * run))
        assert run_archive(growing, key) in (ExitCode.OK, ExitCode.DAMAGE)
    root = growing.lake.root
    options = ["--lake", root, "--evidence-key", str(key), "--quiet"]
    assert audit.main([*options, "--local", "--threads", "1"]) == ExitCode.OK
    assert erase.main([*options, "--key", KEY, "--reason", "a test", "--yes", "--now"]) == ExitCode.OK
    return growing


def verify(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    capsys.readouterr()
    code = evidence.main(["verify", *arguments])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def erasure_of(growing: GrowingLake, key: Path) -> list[str]:
    options = ["--lake", growing.lake.root, "--evidence-key", str(key), "--quiet"]
    return [*options, "--reason", "a test", "--yes", "--now", "--key"]


def list_of(growing: GrowingLake) -> list[Document]:
    return [parse_document(text) for _, text in read_documents(growing.lake)]


def payloads(lake: Lake) -> list[dict[str, object]]:
    return [json.loads(text)["payload"] for _, text in read_documents(lake)]


def test_archive_audit_and_erasure_are_signed_and_chained(
    growing: GrowingLake, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed = verify(capsys, "--lake", growing.lake.root, "--public-key", f"{key}.pub")
    assert code == ExitCode.OK, printed
    assert "valid: 5 documents (2 of archive, 1 of audit, 1 of erasure, 1 of purge)" in printed
    documents = payloads(growing.lake)
    facts = [document["facts"] for document in documents]
    assert [document["kind"] for document in documents] == ["archive", "archive", "audit", "erasure", "purge"]
    assert [fact["messages"] for fact in facts[:2]] == [50, 50]  # type: ignore[index]
    assert set(facts[0]["checksums"]) >= {"checksum", "row_checksum"}  # type: ignore[index]
    assert facts[2]["exit_code"] == 0  # type: ignore[index]
    assert facts[3]["messages"] == 1  # type: ignore[index]
    assert "CANARY" not in repr(documents)
    assert documents[0]["lake"] == str(DeltaTable(growing.lake.uri("messages")).metadata().id)


def test_a_file_of_lines_is_verified_without_the_lake(
    growing: GrowingLake, key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert evidence.main(["show", "--lake", growing.lake.root]) == ExitCode.OK
    file = tmp_path / "evidence.jsonl"
    file.write_text(capsys.readouterr().out)
    code, printed = verify(capsys, str(file), "--public-key", f"{key}.pub")
    assert code == ExitCode.OK, printed
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], *lines[2:]]) + "\n")
    code, printed = verify(capsys, str(file), "--public-key", f"{key}.pub")
    assert code == ExitCode.DAMAGE
    assert "WRONG (missing): document 2 is missing, between 1 and 3" in printed


def test_a_changed_row_in_the_lake_is_reported(
    growing: GrowingLake, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    DeltaTable(growing.lake.uri("evidence")).update(
        predicate="number = 1", updates={"document": "replace(document, '\"messages\":50', '\"messages\":49')"}
    )
    code, printed = verify(capsys, "--lake", growing.lake.root, "--public-key", f"{key}.pub")
    assert code == ExitCode.DAMAGE
    assert "document 1: the signature was not made by the key" in printed


def test_rows_deleted_at_the_end_of_the_table_are_reported(
    growing: GrowingLake, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    DeltaTable(growing.lake.uri("evidence")).delete("number >= 4")
    code, printed = verify(capsys, "--lake", growing.lake.root, "--public-key", f"{key}.pub")
    assert code == ExitCode.DAMAGE
    assert "documents 4 to 5 are missing at the end" in printed
    DeltaTable(growing.lake.uri("evidence")).delete()
    assert verify(capsys, "--lake", growing.lake.root, "--public-key", f"{key}.pub")[0] == ExitCode.DAMAGE


def test_documents_cut_off_from_a_file_are_found_by_comparison_with_the_lake(
    growing: GrowingLake, key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert evidence.main(["show", "--lake", growing.lake.root]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    file = tmp_path / "evidence.jsonl"
    file.write_text("\n".join(lines[:1]) + "\n")
    given = [str(file), "--public-key", f"{key}.pub"]
    code, printed = verify(capsys, *given)
    assert code == ExitCode.OK
    assert "documents that were cut off at the end would not be noticed: give --lake or --head" in printed
    code, printed = verify(capsys, *given, "--lake", growing.lake.root)
    assert code == ExitCode.DAMAGE
    assert "documents 2 to 5 are missing at the end" in printed
    assert "run 2 in the table archive_runs has no document: the last documents were cut off" in printed
    file.write_text("\n".join(lines) + "\n")
    assert verify(capsys, *given, "--lake", growing.lake.root)[0] == ExitCode.OK


@pytest.mark.parametrize(
    ("kept", "found"),
    [
        (1, "run 2 in the table archive_runs has no document"),
        (3, "erasure 1 in the table erasures has no document"),
        (4, "the purge of erasure 1 in the table erasures has no document"),
    ],
)
def test_a_table_that_was_set_back_is_compared_with_runs_and_erasures(
    kept: int, found: str, growing: GrowingLake, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = DeltaTable(growing.lake.uri("evidence")).to_pyarrow_table(filters=[("number", "<=", kept)])
    shutil.rmtree(growing.lake.uri("evidence"))
    (Path(growing.lake.root) / NOTES / "evidence.json").unlink()
    file = write_plain_file(rows, growing.lake, "evidence", "part-0.parquet", statistics=("number",))
    assert commit_with_transaction(growing.lake, "evidence", [file], APPLICATION_ID, (None, kept))
    given = ["--lake", growing.lake.root, "--public-key", f"{key}.pub"]
    code, printed = verify(capsys, *given)
    assert (code, f"WRONG (no document): {found}" in printed) == (ExitCode.DAMAGE, True), printed
    newest = list(read_documents(growing.lake))[-1][1]
    assert verify(capsys, *given, "--head", parse_document(newest).hash)[0] == ExitCode.OK


@pytest.mark.long("archives two lakes several times")
def test_documents_of_another_lake_and_of_a_newer_one_are_found_by_its_runs(
    growing: GrowingLake, key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = growing.copy_to(tmp_path / "older")
    other = GrowingLake(tmp_path / "other")
    for number in range(3):
        other.write(shop_messages(10, first=10 * number))
        assert run_archive(other, key) in (ExitCode.OK, ExitCode.DAMAGE)
        assert erase.main([*erasure_of(other, key), f"order-{10 * number}"]) == ExitCode.OK
    growing.write(shop_messages(50, first=100))
    assert run_archive(growing, key) in (ExitCode.OK, ExitCode.DAMAGE)
    file = tmp_path / "evidence.jsonl"
    for documents, lake, found in (
        (other, growing, "run 3 with the id"),
        (other, growing, "the one of this number has the id"),
        (other, growing, "erasure 3 with the id"),
        (growing, older, "not in the table archive_runs of the lake: it is newer than all of them"),
    ):
        file.write_text("".join(f"{text}\n" for _, text in read_documents(documents.lake)))
        given = [str(file), "--public-key", f"{key}.pub", "--lake", lake.lake.root]
        code, printed = verify(capsys, *given)
        assert (code, "WRONG (lake)" in printed, found in printed) == (ExitCode.DAMAGE, True, True), printed
        assert verify(capsys, *given, "--head", list_of(documents)[-1].hash)[0] == ExitCode.DAMAGE
        assert verify(capsys, *given[:-1], documents.lake.root)[0] == ExitCode.OK


@pytest.mark.long("a repair that creates messages again is tested each time in pipelines/repair")
def test_a_chain_goes_on_after_a_repair_that_created_the_messages_again(
    growing: GrowingLake, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(Path(growing.lake.uri("messages")) / "_delta_log")
    assert maintain.main(["--lake", growing.lake.root, "--repair", "--quiet"]) == ExitCode.OK
    growing.write(shop_messages(50, first=100))
    assert run_archive(growing, key) in (ExitCode.OK, ExitCode.DAMAGE)
    code, printed = verify(capsys, "--lake", growing.lake.root, "--public-key", f"{key}.pub")
    assert code == ExitCode.OK, printed
    assert len({document.payload["lake"] for document in list_of(growing)}) == 1


def test_an_empty_file_is_damage_if_a_head_is_expected(
    key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "evidence.jsonl"
    file.write_text("")
    assert verify(capsys, str(file), "--public-key", f"{key}.pub")[0] == ExitCode.USAGE
    assert verify(capsys, str(file), "--public-key", f"{key}.pub", "--head", "0" * 64)[0] == ExitCode.DAMAGE


@pytest.mark.parametrize("head", ["", "x", "0" * 63, "9" * 5000, "\u0660" * 64, "\ud800", "g" * 64])
def test_a_head_that_is_not_a_hash_is_a_usage_error(head: str, key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        evidence.main(["verify", "file", "--public-key", f"{key}.pub", "--head", head])
    assert "expected 64 hexadecimal digits" in capsys.readouterr().err


def test_a_head_may_have_capital_letters(growing: GrowingLake, key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--lake", growing.lake.root, "--public-key", f"{key}.pub")
    head = verify(capsys, *asked)[1].split()[-1]
    assert verify(capsys, *asked, "--head", head.upper())[0] == ExitCode.OK


def test_a_line_that_is_not_utf_8_is_reported(
    growing: GrowingLake, key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "evidence.jsonl"
    texts = [text.encode() for _, text in read_documents(growing.lake)]
    texts[1] = texts[1].replace(b'"program":"', b'"program":"\xff')
    file.write_bytes(b"\n".join(texts))
    code, printed = verify(capsys, str(file), "--public-key", f"{key}.pub")
    assert code == ExitCode.DAMAGE
    assert "document in line 2: expected an evidence document in UTF-8, found an invalid byte at position " in printed


def test_a_run_that_was_killed_is_signed_by_the_next(tmp_path: Path, key: Path) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(10, secrets=()))
    run_archive(growing, key)
    growing.write(shop_messages(10, secrets=(), first=10))
    growing.archive()  # without evidence, as if it was killed before it
    growing.write(shop_messages(10, secrets=(), first=20))
    run_archive(growing, key)
    assert [document["facts"]["sequence"] for document in payloads(growing.lake)] == [1, 2, 3]  # type: ignore[index]
    run_archive(growing, key)  # no new messages
    assert len(payloads(growing.lake)) == 3


def test_a_new_key_is_written_with_its_public_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new.pem"
    assert evidence.main(["key", "--out", str(path)]) == ExitCode.OK
    assert "public key, with the id" in capsys.readouterr().err
    assert Path(f"{path}.pub").exists()


def test_no_private_key_is_left_if_the_public_key_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "new.pem.pub").write_text("another")
    assert evidence.main(["key", "--out", str(tmp_path / "new.pem")]) == ExitCode.USAGE
    assert "new.pem.pub exists already" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.pem.pub"]


def test_a_private_key_that_others_can_read_is_refused(
    tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = Path(shutil.copy2(key, tmp_path))
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    growing = write_lake(tmp_path, runs=1)
    arguments = ["--lake", growing.lake.root, "--local", "--threads", "1", "--evidence-key", str(key)]
    key.chmod(0o640)
    assert audit.main(arguments) == ExitCode.USAGE
    assert "only its owner may read, found mode 0640" in capsys.readouterr().err
    key.chmod(0o600)
    (tmp_path / ".git").mkdir()
    assert audit.main(arguments) == ExitCode.USAGE
    assert "outside every Git repository" in capsys.readouterr().err
    assert not Path(growing.lake.uri("evidence")).exists()


@pytest.mark.parametrize("text", ["", "x", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_a_file_without_a_key_is_refused(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.pem"
    path.write_text(text)
    path.chmod(0o600)
    growing = write_lake(tmp_path, runs=1)
    assert erase.main(["--lake", growing.lake.root, "--finish", "--evidence-key", str(path)]) == ExitCode.USAGE
    assert "expected a private Ed25519 key in PEM" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["key"], "'evidence key' needs --out"),
        (["verify", "--public-key", "x"], "'evidence verify' needs one of FILE and --lake"),
        (["verify", "file"], "'evidence verify' needs --public-key"),
        (["show"], "'evidence show' needs --lake"),
        (["show", "--lake", "/nowhere", "--out", "x"], "--out cannot be used with 'evidence show'"),
        (["verify", "/nowhere", "--public-key", "/nowhere"], "the file with the key cannot be read"),
    ],
)
def test_missing_options_are_refused(given: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert evidence.main(given) == ExitCode.USAGE
    assert expected in capsys.readouterr().err


def test_a_lake_in_the_environment_does_not_exclude_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COMMITLAKE_LAKE", "lake")
    assert evidence.main(["verify", "/nowhere", "--public-key", "/nowhere"]) == ExitCode.USAGE
    assert "the file with the key cannot be read" in capsys.readouterr().err


def test_a_key_is_never_replaced(key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = key.read_bytes()
    assert evidence.main(["key", "--out", str(key)]) == ExitCode.USAGE
    assert "exists already" in capsys.readouterr().err
    assert key.read_bytes() == before
