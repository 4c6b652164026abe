"""Compiled code is kept where it can be written, never used for another source, and safe to share."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import pkgutil
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import CodeType, ModuleType

import pytest

from commitlake.connectors.reading.kernel import function_cache
from commitlake.connectors.reading.kernel.compile_options import compiled
from commitlake.connectors.reading.kernel.function_cache import KernelCacheFile, cache_folder

PROJECT = Path(function_cache.__file__).parents[4]


@pytest.fixture(autouse=True)
def ask_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let each test see the folder that its own settings give."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    cache_folder.cache_clear()
    yield
    cache_folder.cache_clear()


def plus_one(number: int) -> int:
    return number + 1


def test_the_folder_is_next_to_the_source_if_that_is_writable() -> None:
    folder = cache_folder()
    assert folder is not None
    assert folder.parent == Path(function_cache.__file__).parent / "__pycache__"


def test_the_folder_is_in_the_users_cache_for_a_read_only_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, _: Path(path).is_relative_to(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = cache_folder()
    assert folder is not None
    assert folder.parent == tmp_path / "commitlake"


def test_a_read_only_installation_gives_its_compiled_code_to_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function_cache, "_HERE", tmp_path / "installed")
    installed = cache_folder()
    assert installed is not None
    (installed / "function.nbi").write_bytes(b"compiled")
    cache_folder.cache_clear()
    user = tmp_path / "user"
    monkeypatch.setattr(os, "access", lambda path, _: Path(path).is_relative_to(user))
    monkeypatch.setenv("XDG_CACHE_HOME", str(user))
    folder = cache_folder()
    assert folder == user / "commitlake" / installed.name
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [("function.nbi", b"compiled")]
    assert list(folder.parent.iterdir()) == [folder]


def test_the_folder_is_in_numbas_if_the_user_has_chosen_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    folder = cache_folder()
    assert folder is not None
    assert folder.parent == tmp_path / "commitlake"


def test_code_is_not_loaded_from_a_folder_that_others_can_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    planted = cache_folder()
    assert planted is not None
    planted.chmod(0o777)
    cache_folder.cache_clear()
    folder = cache_folder()
    assert folder is not None
    assert not folder.is_relative_to(tmp_path)
    (line,) = caplog.messages
    assert line.startswith(f"{planted}: no code is run from it")


def test_others_cannot_write_to_stored_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    before = os.umask(0)
    try:
        assert compiled(plus_one)(6) == 7
    finally:
        os.umask(before)
    stored = list((tmp_path / "numba" / "commitlake").rglob("*"))
    assert any(path.suffix == ".nbc" for path in stored)
    assert [path for path in stored if path.stat().st_mode & 0o022] == []


def test_stored_functions_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert function_cache.compiled_function_count() == 0
    assert compiled(plus_one)(6) == 7
    assert function_cache.compiled_function_count() == 1


def test_a_function_is_compiled_without_a_cache_if_no_folder_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert cache_folder() is None
    assert compiled(plus_one)(6) == 7


def test_functions_are_compiled_if_their_code_cannot_be_cached_and_that_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(KernelCacheFile, "save", fail)
    assert compiled(plus_one)(6) == 7
    assert compiled(plus_one)(6) == 7
    (line,) = caplog.messages
    assert str(tmp_path) in line
    assert line.endswith("are compiled in every process: No space left on device")


def use_package(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the folder be named after an empty package."""
    for folder in function_cache._FOLDERS:
        (root / folder).mkdir(parents=True)
    monkeypatch.setattr(function_cache, "_PACKAGE", root)


def test_the_folder_changes_when_any_source_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = (
        "connectors/formats/kernel/crc.py",
        "pipelines/rebuild/rules.py",
        "schemas/layouts/rocketmq/commitlog.py",
    )
    use_package(tmp_path, monkeypatch)
    found = [function_cache._source_digest()]
    for number in range(2):
        for source in sources:
            (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / source).write_text(f"from kernel import compiled\nVALUE = {number}\n")
            found.append(function_cache._source_digest())
    assert len(set(found)) == len(found)


def test_a_module_without_compiled_functions_does_not_change_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_package(tmp_path, monkeypatch)
    before = function_cache._source_digest()
    (tmp_path / "pipelines" / "module.py").write_text("VALUE = 1\n")
    assert function_cache._source_digest() == before


def names_in(code: CodeType) -> set[str]:
    """Return the names of globals and attributes in a function's code."""
    return set(code.co_names).union(*(names_in(each) for each in code.co_consts if isinstance(each, CodeType)))


def imported_from(module: ModuleType) -> dict[str, str]:
    """Return the module of the project from which each name of a module was imported."""
    found = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("commitlake."):
            for name in node.names:
                whole = f"{node.module}.{name.name}"
                found[name.asname or name.name] = whole if whole in sys.modules else str(node.module)
    return found


def test_the_folders_name_depends_on_everything_that_compiled_code_uses() -> None:
    covered = {name for name, _ in function_cache.list_sources()}
    missing: dict[str, str] = {}
    functions = 0
    for package in ("connectors", "pipelines"):
        for each in pkgutil.walk_packages([str(PROJECT / "commitlake" / package)], f"commitlake.{package}."):
            module = importlib.import_module(each.name)
            imported = imported_from(module)
            for value in vars(module).values():
                function = getattr(value, "py_func", None)
                if function is None or function.__module__ != module.__name__:
                    continue
                functions += 1
                held = {module.__name__, *(imported[name] for name in names_in(function.__code__) & imported.keys())}
                files = {name.removeprefix("commitlake.").replace(".", "/") + ".py" for name in held}
                missing.update(dict.fromkeys(files - covered, f"{module.__name__}.{function.__name__}"))
    assert missing == {}
    assert functions > 50


def cache_file(folder: Path) -> KernelCacheFile:
    return KernelCacheFile(str(folder), "function", b"stamp of the source")  # type: ignore[no-untyped-call]


def test_concurrent_writers_lose_and_mix_up_no_code(tmp_path: Path) -> None:
    keys = range(32)
    with ThreadPoolExecutor(8) as writers:
        list(writers.map(lambda key: cache_file(tmp_path).save(key, f"code {key}"), keys))
    assert [cache_file(tmp_path).load(key) for key in keys] == [f"code {key}" for key in keys]


def test_a_second_save_of_a_key_keeps_the_first_code(tmp_path: Path) -> None:
    cache_file(tmp_path).save("key", "first")
    cache_file(tmp_path).save("key", "second")
    assert cache_file(tmp_path).load("key") == "first"
    assert len(list(tmp_path.glob("*.nbc"))) == 1


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("content", [b"", b"\x80\x05no pickle"])
def test_a_damaged_file_is_replaced(tmp_path: Path, suffix: str, content: bytes) -> None:
    cache_file(tmp_path).save("key", "code")
    (damaged,) = tmp_path.glob(f"*{suffix}")
    damaged.write_bytes(content)
    assert cache_file(tmp_path).load("key") is None
    cache_file(tmp_path).save("key", "again")
    assert cache_file(tmp_path).load("key") == "again"


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_a_flipped_bit_anywhere_is_found(tmp_path: Path, suffix: str, caplog: pytest.LogCaptureFixture) -> None:
    cache_file(tmp_path).save("key", b"machine code " * 4)
    (damaged,) = tmp_path.glob(f"*{suffix}")
    content = damaged.read_bytes()
    for at in range(len(content)):
        damaged.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        assert cache_file(tmp_path).load("key") is None
    assert all("will be compiled again (ValueError)" in line for line in caplog.messages)
    assert len(caplog.messages) == len(content)


PROGRAM = """
import sys
import numpy as np
from commitlake.connectors.reading.kernel.crc import crc32
sys.stdout.write("ready\\n"); sys.stdout.flush()
sys.stdin.readline()
print(crc32(np.frombuffer(b"123456789", np.uint8), 0, 9), *crc32.stats.cache_hits.values())
"""


COMPILER = "numba.np.linalg"  # one of a hundred modules that it loads
AFTER = f"""
print({COMPILER!r} in sys.modules)
numbers = np.arange(3)
print(compiled(lambda numbers: numbers[2])(numbers), {COMPILER!r} in sys.modules)
"""


@pytest.mark.long("the cache is used by all tests each time")
def test_cached_code_runs_without_the_modules_of_the_compiler_which_loads_them_itself() -> None:
    program = f"from commitlake.connectors.reading.kernel.compile_options import compiled\n{PROGRAM}{AFTER}"
    for _ in range(2):  # the first process may have to compile the function
        said = subprocess.check_output([sys.executable, "-c", program], text=True, input="go\n", cwd=PROJECT)
    assert said.split()[1:] == [str(0xCBF43926), "1", "False", "2", "True"]


ALLOCATING = """
import numba, numpy as np
from commitlake.connectors.reading.kernel.function_cache import function_cache
def squares(count):
    return np.arange(count) ** 2
compiled = numba.njit(squares)
compiled._cache = function_cache(squares)
print(compiled(4).sum(), *compiled.stats.cache_hits.values())
"""


@pytest.mark.long("the cache is used by all tests each time")
def test_cached_code_that_allocates_finds_the_functions_of_the_runtime(tmp_path: Path) -> None:
    (program := tmp_path / "program.py").write_text(ALLOCATING)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(PROJECT)}
    said = [subprocess.check_output([sys.executable, program], text=True, env=environment) for _ in range(2)]
    assert [one.split() for one in said] == [["14"], ["14", "1"]]


@pytest.mark.long("three processes compile a function")
def test_two_processes_that_compile_at_once_both_work_and_a_third_finds_the_code(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-c", PROGRAM]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            command, env=environment, cwd=tmp_path, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def finish(process: subprocess.Popen[str]) -> list[str]:
        return process.communicate("go\n", timeout=120)[0].split()[-2:]

    both = [start(), start()]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    with ThreadPoolExecutor(2) as pool:
        assert [answer[0] for answer in pool.map(finish, both)] == [str(0xCBF43926)] * 2
    assert finish(start()) == [str(0xCBF43926), "1"]


@pytest.mark.long("two processes compile a function")
def test_a_package_that_was_moved_finds_its_compiled_code(tmp_path: Path) -> None:
    first = "import sys; sys.meta_path = [each for each in sys.meta_path if 'editable' not in repr(each)]"
    cached: list[str] = []
    for place in ("here", "there"):
        if place == "here":
            without_caches = shutil.ignore_patterns("__pycache__")
            shutil.copytree(PROJECT / "commitlake", tmp_path / place / "commitlake", ignore=without_caches)
        else:
            (tmp_path / "here").rename(tmp_path / place)
        for path in (tmp_path / place).rglob("*.py"):
            os.utime(path, (1_700_000_000, 1_700_000_000 + len(cached)))
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / place)}
        command = [sys.executable, "-c", f"{first}\n{PROGRAM}\nprint(crc32.__wrapped__.__code__.co_filename)"]
        said = subprocess.check_output(command, env=environment, cwd=tmp_path, text=True, input="go\n").split()
        assert said[-1].startswith(f"{tmp_path / place}/")
        cached.append(said[-2])
    assert cached == [str(0xCBF43926), "1"]  # the first process found no code, so it printed no number of hits


@pytest.mark.long("numba keeps it in its own way; code of a package in a folder is moved and found again each time")
def test_compiled_code_of_a_package_in_a_zip_file_is_kept(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "commitlake.zip", "w") as package:
        for folder, _, files in os.walk(PROJECT / "commitlake", followlinks=True):
            for name in (each for each in files if each.endswith(".py")):
                path = Path(folder, name)
                package.write(path, path.relative_to(PROJECT))
    first = "import sys; sys.meta_path = [each for each in sys.meta_path if 'editable' not in repr(each)]"
    program = f"{first}\n{PROGRAM}\nprint(crc32.stats.cache_path)"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(tmp_path / "commitlake.zip")}
    command = [sys.executable, "-c", program]
    said = subprocess.check_output(command, env=environment, cwd=tmp_path, text=True, input="go\n")
    answer, folder = said.split()[-2:]
    assert answer == str(0xCBF43926)
    assert Path(folder).is_relative_to(tmp_path)
    assert any(Path(folder).glob("*.nbc"))
