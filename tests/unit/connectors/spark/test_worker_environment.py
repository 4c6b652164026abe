"""The Python environment that executors of a cluster get."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path

import pytest

from commitlake.connectors.spark import worker_environment
from commitlake.connectors.spark.worker_environment import NAME, PYTHON, Member, driver_folder, executor_archive
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
    monkeypatch.setattr(worker_environment, "_distributions", lambda **_: iter([metadata.distribution("packaging")]))
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
        wait_until(lambda executor=executor: not (executor / "lib").exists())  # type: ignore[misc]
    (kept,) = (home / ".cache" / "commitlake" / "executors").iterdir()
    assert kept.name in executor_archive().name
    old = kept.with_name("of-an-older-version")
    old.mkdir()
    os.utime(old, (0, 0))
    assert run(executors[0] / "bin" / "python", "-c", PROGRAM, folder=tmp_path, HOME=str(home)).returncode == 0
    assert list(kept.parent.iterdir()) == [kept]


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
    monkeypatch.setattr(worker_environment, "_members", lambda **_: iter([Member("commitlake/module.py", module)]))
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
    names = {member.name for member in worker_environment._members(with_driver=False)}
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
    names = {member.name for member in worker_environment._members(with_driver=True)}
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
