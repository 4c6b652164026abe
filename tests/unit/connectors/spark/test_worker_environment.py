"""The Python environment that executors of a cluster get."""

from __future__ import annotations

import fcntl
import os
import py_compile
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path, PurePosixPath

import pytest

from commitlake.connectors.reading.kernel import function_cache
from commitlake.connectors.spark import worker_environment
from commitlake.connectors.spark.executor_start import DIGEST, FILES
from commitlake.connectors.spark.worker_environment import NAME, PYTHON, ArchiveMember, driver_folder, executor_archive
from commitlake.schemas.private_folders import SharedFolderError
from tests.support.waiting import wait_until

PROGRAM = """
import sys
import commitlake.schemas.layouts.rocketmq.commitlog as module
import packaging
print(module.__file__, packaging.__file__, sys.prefix)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's cache folder, for archives with few packages."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(
        worker_environment, "_list_distributions", lambda **_: iter([metadata.distribution("packaging")])
    )
    monkeypatch.setattr(function_cache, "cache_folder", lambda: None)  # other tests may be compiling
    return tmp_path / "cache"


def run(python: Path, *arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the archive's Python in an environment that has nothing else."""
    return subprocess.run(
        [str(python), *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def unpack(folder: Path) -> None:
    """Unpack the archive as an executor does."""
    folder.mkdir(parents=True)
    subprocess.run(["tar", "-xf", executor_archive(), "-C", folder], check=True)


def test_an_executor_imports_the_package_from_the_archive(cache: Path, tmp_path: Path) -> None:
    executor = tmp_path / "executor" / NAME
    unpack(executor)
    done = run(executor / "bin" / "python", "-c", PROGRAM, folder=executor.parent, PYTHONPATH="/another/folder")
    assert done.returncode == 0, done.stderr
    module, packaging, prefix = done.stdout.split()
    assert Path(module).is_relative_to(executor / "lib" / "commitlake")
    assert Path(packaging).is_relative_to(executor / "lib")
    assert prefix != sys.prefix


def test_runs_on_one_worker_share_the_packages_and_leave_no_copy(cache: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    executors = [tmp_path / "work" / f"app-{number}" / NAME for number in range(3)]
    for number, executor in enumerate(executors):
        unpack(executor)
        for _ in range(2):  # the second Python of a run finds what the first one left
            done = run(executor / "bin" / "python", "-c", PROGRAM, folder=executor.parent, HOME=str(home))
            assert done.returncode == 0, (number, done.stderr)
            module, packaging, _prefix = done.stdout.split()
            assert Path(module).is_relative_to(home / ".cache" / "commitlake" / "executors")
            assert Path(packaging).is_relative_to(home)
        wait_until(lambda executor=executor: [path.name for path in executor.iterdir()] == ["bin"])  # type: ignore[misc]
    (kept,) = kept_folder(home).iterdir()
    assert kept.name == (executors[0] / DIGEST).read_text()
    assert kept.parent.stat().st_mode & 0o777 == 0o700


def kept_folder(home: Path) -> Path:
    """The folder of a user's home to which packages are moved."""
    return home / ".cache" / "commitlake" / "executors"


def start(executor: Path, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a program with the packages of an unpacked archive."""
    return run(executor / "bin" / "python", "-c", PROGRAM, folder=executor.parent, HOME=str(home))


@pytest.fixture
def home(cache: Path, tmp_path: Path) -> Path:
    """The home of a worker's user, with the packages of an earlier run."""
    unpack(tmp_path / "earlier" / NAME)
    assert start(tmp_path / "earlier" / NAME, tmp_path / "home").returncode == 0
    return tmp_path / "home"


def test_packages_that_no_run_uses_are_deleted_after_some_time(home: Path, tmp_path: Path) -> None:
    (kept,) = kept_folder(home).iterdir()
    unused, used, leftover = (kept.with_name(name) for name in ("unused", "used", ".deleted-x"))
    for folder in (unused, used, leftover):
        folder.mkdir()
        os.utime(folder, (0, 0))
    descriptor = os.open(used, os.O_RDONLY)  # by a stream that has run for long
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        assert start(tmp_path / "earlier" / NAME, home).returncode == 0
        wait_until(lambda: sorted(kept.parent.iterdir()) == sorted([kept, used]))
    finally:
        os.close(descriptor)
    assert start(tmp_path / "earlier" / NAME, home).returncode == 0
    wait_until(lambda: list(kept.parent.iterdir()) == [kept])


def test_a_process_holds_the_packages_that_it_uses(home: Path, tmp_path: Path) -> None:
    (kept,) = kept_folder(home).iterdir()
    program = f"""
import fcntl, os, sys
try:
    fcntl.flock(os.open({str(kept)!r}, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("held")
"""
    python = tmp_path / "earlier" / NAME / "bin" / "python"
    assert run(python, "-c", program, folder=tmp_path, HOME=str(home)).stdout == "held\n"


@pytest.mark.some_cases(1)
@pytest.mark.parametrize("damage", ["missing", "cut", "listed"])
def test_packages_that_are_not_whole_any_more_are_replaced(damage: str, home: Path, tmp_path: Path) -> None:
    (kept,) = kept_folder(home).iterdir()
    module = kept / "packaging" / "version.py"
    if damage == "missing":
        module.unlink()
    elif damage == "cut":
        os.truncate(module, 100)
    else:
        (kept / FILES).unlink()
    done = start(tmp_path / "earlier" / NAME, home)
    assert f"{kept}: files are missing, or were cut: the next run replaces them" in done.stderr
    unpack(tmp_path / "later" / NAME)
    done = start(tmp_path / "later" / NAME, home)
    assert (done.returncode, done.stderr) == (0, "")
    wait_until(lambda: list(kept.parent.iterdir()) == [kept])
    assert module.stat().st_size > 100


def test_packages_to_which_something_was_appended_are_whole(home: Path, tmp_path: Path) -> None:
    (kept,) = kept_folder(home).iterdir()
    with (kept / "packaging" / "version.py").open("a") as file:
        file.write("# certificates of a company")
    unpack(tmp_path / "later" / NAME)
    assert start(tmp_path / "later" / NAME, home).stderr == ""
    assert (kept / "packaging" / "version.py").read_text().endswith("# certificates of a company")


def test_an_archive_that_was_not_unpacked_to_its_end_is_not_kept(cache: Path, tmp_path: Path) -> None:
    unpack(tmp_path / NAME)
    (tmp_path / NAME / DIGEST).unlink()
    done = start(tmp_path / NAME, tmp_path / "home")
    assert done.returncode == 0
    assert "No such file" in done.stderr
    assert Path(done.stdout.split()[0]).is_relative_to(tmp_path / NAME)
    assert not kept_folder(tmp_path / "home").exists()


@pytest.mark.some_cases(1)
@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_packages_are_not_run_from_a_folder_that_others_can_write_to(mode: int, cache: Path, tmp_path: Path) -> None:
    unpack(tmp_path / NAME)
    planted = kept_folder(tmp_path / "home") / (tmp_path / NAME / DIGEST).read_text()
    (planted / "packaging").mkdir(parents=True)
    (planted / "packaging" / "__init__.py").write_text("print('planted')")
    planted.parent.chmod(mode)
    done = start(tmp_path / NAME, tmp_path / "home")
    assert done.returncode == 0
    assert "planted" not in done.stdout
    assert f"no other user can write to, found one with mode {mode:04o}" in done.stderr


def test_executors_that_start_at_once_share_the_packages(cache: Path, tmp_path: Path) -> None:
    executors = [tmp_path / "work" / str(number) / NAME for number in range(4)]
    for executor in executors:
        unpack(executor)
    with ThreadPoolExecutor(len(executors)) as pool:
        for done in pool.map(lambda executor: start(executor, tmp_path / "home"), executors):
            assert (done.returncode, done.stderr) == (0, "")
    for executor in executors:
        wait_until(lambda executor=executor: [path.name for path in executor.iterdir()] == ["bin"])  # type: ignore[misc]
    assert len(list(kept_folder(tmp_path / "home").iterdir())) == 1


def _members(module: Path) -> Iterator[ArchiveMember]:
    yield ArchiveMember("commitlake/module.py", module)
    yield from worker_environment._bytecode_archive_member(PurePosixPath("commitlake/module.py"), module)


def test_the_digest_is_that_of_the_content(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "module.py"
    monkeypatch.setattr(worker_environment, "_list_archive_members", lambda **_: iter(_members(module)))
    digests = []
    for number, value in enumerate((1, 2, 2)):  # as in an image whose files all have the same time
        module.write_text(f"VALUE = {value}\n")
        os.utime(module, (0, 0))
        if number == 2:
            py_compile.compile(str(module))  # not always there
        shutil.rmtree(cache, ignore_errors=True)
        unpack(tmp_path / str(number))
        digests.append((tmp_path / str(number) / DIGEST).read_text())
    assert digests[0] != digests[1] == digests[2]


def test_unpacked_folders_are_not_writable_for_others(cache: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        unpack(tmp_path / NAME)
    finally:
        os.umask(before)
    found = [path for path in (tmp_path / NAME / "lib").rglob("*") if path.stat().st_mode & 0o022]
    assert found == []


def test_no_archive_is_taken_from_a_folder_that_others_can_write_to(cache: Path) -> None:
    folder = executor_archive().parent
    folder.chmod(0o777)
    with pytest.raises(SharedFolderError):
        executor_archive()
    with pytest.raises(SharedFolderError):
        driver_folder()


@pytest.mark.some_cases(1)
@pytest.mark.parametrize("link", [True, False])
def test_packages_stay_where_a_cluster_has_its_own_cache_or_the_home_cannot_be_written(
    link: bool, cache: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "filecache" / "unpacked"
    unpack(folder)
    executor = tmp_path / NAME
    executor.symlink_to(folder) if link else folder.rename(executor)
    home = tmp_path / "home" if link else Path("/dev/null")
    done = run(Path(PYTHON), "-c", PROGRAM, folder=tmp_path, HOME=str(home))
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.split()[0]).resolve().is_relative_to((executor / "lib").resolve())


def test_an_archive_is_made_once_for_the_same_packages(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = executor_archive()
    assert "packing the Python environment" in capsys.readouterr().err
    assert executor_archive() == first
    assert capsys.readouterr().err == ""


def test_another_version_has_another_archive_and_two_are_kept(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "module.py"
    monkeypatch.setattr(
        worker_environment, "_list_archive_members", lambda **_: iter([ArchiveMember("commitlake/module.py", module)])
    )
    found = []
    for number in range(4):
        module.write_text(f"VALUE = {number}\n" * (number + 1))
        archive = executor_archive()
        os.utime(archive, (number, number))
        found.append(archive)
    assert len(set(found)) == 4
    assert sorted(cache.rglob("*.tar.gz")) == sorted(found[-2:])


def test_an_archive_that_was_not_finished_is_not_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as changed:
        changed.setattr(tarfile.TarFile, "addfile", fail)
        with pytest.raises(OSError, match="No space left"):
            executor_archive()
    assert list(cache.rglob("*.t*")) == []
    with tarfile.open(executor_archive()) as packed:
        assert "bin/python" in packed.getnames()


def test_packages_of_spark_and_of_the_driver_and_unneeded_folders_are_left_out() -> None:
    names = {member.name for member in worker_environment._list_archive_members(includes_driver=False)}
    tops = {name.split("/")[0] for name in names}
    assert {"commitlake", "numpy", "pyarrow", "numba", "deltalake"} <= tops
    assert {"boto3", "obstore", "google", "hdfs_native", "happybase"} <= tops
    assert not tops & {"pyspark", "py4j", "delta", "great_expectations", "scipy", "pytest", "mypy"}
    assert not any("/tests/" in name for name in names if name.startswith("pandas/"))
    assert [name for name in names if "commitlake-" in name.split("/")[0]] == [
        f"commitlake-{metadata.version('commitlake')}.dist-info/METADATA"
    ]
    assert any(name.endswith(".nbi") for name in names)


def test_a_driver_in_the_cluster_gets_what_judges_runs_too() -> None:
    names = {member.name for member in worker_environment._list_archive_members(includes_driver=True)}
    tops = {name.split("/")[0] for name in names}
    assert {"commitlake", "numpy", "great_expectations", "prometheus_client"} <= tops
    assert not tops & {"pyspark", "py4j", "delta", "pytest", "mypy"}


def test_executor_without_a_suitable_python_prints_what_to_do(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", (2, 99, 0, "final", 0))
    script = tmp_path / "python"
    script.write_text(worker_environment._launcher_script())
    script.chmod(0o755)
    done = run(script, "-c", "pass", folder=tmp_path)
    assert done.returncode == 127
    assert "expected Python 2.99 on " in done.stderr
    assert "PYSPARK_PYTHON" in done.stderr


def test_the_same_path_is_the_drivers_python_in_its_folder(cache: Path) -> None:
    folder = driver_folder()
    done = run(Path(PYTHON), "-c", "import sys; print(sys.prefix)", folder=folder)
    assert done.stdout.strip() == sys.prefix
    assert driver_folder() == folder
