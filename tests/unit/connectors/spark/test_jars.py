"""Location of Delta's jars, and the error where they are missing; Ivy itself runs at set-up."""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path
from typing import Any

import pyspark
import pytest

from commitlake.connectors.spark.jars import JarsError, _locked_digests, delta_jars, fetch_delta_jars, s3_jars
from commitlake.connectors.spark.versions import TESTED
from tests.servers.jars import JarsError as ServerJarsError
from tests.servers.jars import check_jars

NAMES = ["delta-spark_4.2_2.13-4.4.0.jar", "delta-storage-4.4.0.jar"]


S3_NAMES = ["hadoop-aws.jar", "s3.jar"]
JAR = b"jar"


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder that the environment names, empty; the lock has small files under the jars' names."""
    monkeypatch.setenv("COMMITLAKE_JARS", str(tmp_path / "jars"))
    lock = tmp_path / "jars.lock"
    names = [*NAMES, *(f"s3/{name}" for name in S3_NAMES)]
    lock.write_text("".join(f"{hashlib.sha256(JAR).hexdigest()}  {name}\n" for name in names))
    monkeypatch.setattr("commitlake.connectors.spark.jars._LOCK", lock)
    return tmp_path / "jars"


def run_ivy_that(monkeypatch: pytest.MonkeyPatch, *, writes: bytes | None, says: str = "") -> list[str]:
    """Replace Ivy: it writes a jar, or none, and prints a text; return a list that collects the requested modules."""
    asked: list[str] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        name, version = command[command.index("-dependency") + 2 :][:2]
        asked.append(name)
        if writes is not None:
            pattern = command[command.index("-retrieve") + 1]
            Path(pattern.replace("[artifact]-[revision].[ext]", f"{name}-{version}.jar")).write_bytes(writes)
        return subprocess.CompletedProcess(command, 0 if writes is not None else 1, stdout=says, stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    return asked


def test_the_jars_are_those_of_the_installed_packages(folder: Path) -> None:
    folder.mkdir()
    for name in NAMES:
        (folder / name).write_bytes(JAR)
    assert delta_jars() == [folder / name for name in NAMES]


def test_the_error_for_a_missing_jar_says_what_to_do(folder: Path) -> None:
    with pytest.raises(
        JarsError, match=rf"{folder} lacks {', '.join(NAMES)}: run .* or set COMMITLAKE_JARS to a folder"
    ):
        delta_jars()


def test_only_missing_jars_are_fetched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    (folder / NAMES[0]).write_bytes(b"as it was")
    asked = run_ivy_that(monkeypatch, writes=JAR)
    fetch_delta_jars()
    assert asked == ["delta-storage"]
    assert sorted(path.name for path in folder.iterdir()) == NAMES
    assert (folder / NAMES[0]).read_bytes() == b"as it was"


def test_a_failed_fetch_leaves_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_ivy_that(monkeypatch, writes=None, says="some lines\nUNRESOLVED DEPENDENCY\n")
    with pytest.raises(JarsError, match=r"io\.delta:delta-spark_4\.2_2\.13:4\.4\.0 .*UNRESOLVED DEPENDENCY.*network"):
        fetch_delta_jars()
    assert list(folder.iterdir()) == []


def run_ivy_for_s3(monkeypatch: pytest.MonkeyPatch, *, names: list[str], code: int = 0) -> list[str]:
    """Replace Ivy: it writes these jars; return a list that collects the requested modules."""
    asked: list[str] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(Path(command[command.index("-ivy") + 1]).read_text())
        folder = Path(command[command.index("-retrieve") + 1]).parent
        for name in names:
            (folder / name).write_bytes(JAR)
        return subprocess.CompletedProcess(command, code, stdout="UNRESOLVED DEPENDENCY", stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    return asked


def test_jars_for_object_stores_are_fetched_once_on_demand(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = run_ivy_for_s3(monkeypatch, names=S3_NAMES)
    for _ in range(2):
        assert [jar.name for jar in s3_jars()] == ["hadoop-aws.jar", "s3.jar"]
    assert len(asked) == 1
    assert capsys.readouterr().err == "fetching the jars for object stores, once\n"
    assert all(folder / "s3" in jar.parents for jar in s3_jars())


def test_hadoops_module_has_the_version_that_is_inside_pyspark(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = run_ivy_for_s3(monkeypatch, names=S3_NAMES)
    s3_jars()
    jars = Path(pyspark.__file__).parent / "jars"
    (version,) = re.findall(r'name="hadoop-aws" rev="([^"]+)"', asked[0])
    assert (jars / f"hadoop-client-api-{version}.jar").is_file()


@pytest.mark.parametrize(("names", "code"), [([], 0), (["half.jar"], 1)])
def test_jars_for_object_stores_are_fetched_completely_or_not_at_all(
    names: list[str], code: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_ivy_for_s3(monkeypatch, names=names, code=code)
    with pytest.raises(JarsError, match=r"cannot fetch Hadoop's module for S3 \(UNRESOLVED DEPENDENCY\)"):
        s3_jars()
    assert list((folder / "s3").iterdir()) == []


@pytest.mark.parametrize("wrong", NAMES)
def test_an_existing_jar_with_a_wrong_digest_is_refused(folder: Path, wrong: str) -> None:
    folder.mkdir()
    for name in NAMES:
        (folder / name).write_bytes(b"another" if name == wrong else JAR)
    expected, found = (hashlib.sha256(data).hexdigest() for data in (JAR, b"another"))
    with pytest.raises(
        JarsError, match=rf"{wrong}: expected a jar with the SHA-256 {expected}, found {found}. .*delete it"
    ):
        delta_jars()


def test_a_fetched_jar_with_a_wrong_digest_is_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_ivy_that(monkeypatch, writes=b"another")
    with pytest.raises(
        JarsError, match=r"delta-spark.*: expected a jar with the SHA-256 [0-9a-f]{64}, found [0-9a-f]{64}"
    ):
        fetch_delta_jars()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["hadoop-aws.jar"], "lacks s3.jar"),
        ([*S3_NAMES, "planted.jar"], r"planted\.jar: expected a jar with the SHA-256 of a known jar"),
    ],
)
def test_jars_for_object_stores_are_exactly_those_of_the_lock(
    folder: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], told: str
) -> None:
    run_ivy_for_s3(monkeypatch, names=names)
    with pytest.raises(JarsError, match=told):
        s3_jars()
    assert list((folder / "s3").iterdir()) == []


def test_a_jar_added_later_to_those_for_object_stores_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_ivy_for_s3(monkeypatch, names=S3_NAMES)
    kept = s3_jars()[0].parent
    (kept / "planted.jar").write_bytes(JAR)
    with pytest.raises(JarsError, match=r"planted\.jar: expected a jar with the SHA-256 of a known jar"):
        s3_jars()


def test_a_folder_that_cannot_be_written_is_an_error_that_says_what_to_do(folder: Path) -> None:
    folder.write_text("no folder")
    with pytest.raises(
        JarsError, match=r"cannot be written to their folder: .*connectors\.spark\.jars s3.*COMMITLAKE_JARS"
    ):
        s3_jars()


def test_the_lock_names_the_jars_of_each_spark_version() -> None:
    sparks = [f"delta-spark_{version}_2.13-4.4.0.jar" for version in TESTED]
    assert [name for name in _locked_digests() if "/" not in name] == [*sparks, "delta-storage-4.4.0.jar"]
    assert len([name for name in _locked_digests() if name.startswith("s3/")]) == 36


def test_another_hadoop_has_no_jars_for_object_stores(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commitlake.connectors.spark.jars._hadoop_version", lambda: "3.4.2")
    with pytest.raises(JarsError, match=r"contains Hadoop 3\.4\.2, .* not tested: use Spark 4\.2, or .*--local"):
        s3_jars()
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in _locked_digests().values())


def test_a_servers_jar_that_no_lock_names_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "servers.lock"
    lock.write_text(f"{hashlib.sha256(JAR).hexdigest()}  a-1.0.jar\n")
    (tmp_path / "org_a-1.0.jar").write_bytes(JAR)
    check_jars(tmp_path, lock)
    (tmp_path / "b-1.0.jar").write_bytes(b"another")
    with pytest.raises(ServerJarsError, match=r"b-1\.0\.jar: expected a SHA-256 of servers\.lock, found [0-9a-f]{64}"):
        check_jars(tmp_path, lock)
