"""Cache folder of this project's compiled functions, which processes share.

numba checks the file of a function to decide whether its compiled code is still valid, but not the files of the
functions that it calls. The folder is therefore named after a hash of all sources that are compiled together, and of
the formats. In it, code is found by the name of its module: an installation that was moved, or sent to another machine,
finds the code that came with it. (For another processor numba compiles again.) For a package in a zip file, numba's own
folder is used, and numba checks the zip file as a whole.
The folder is in `NUMBA_CACHE_DIR` if that is set, else beside the source, else (for a read-only installation) in the
user's cache folder, to which the compiled code of the installation is copied. A folder that others can write to is not
used, because loading compiled code runs it. numba's own settings are not changed: functions of other packages are
cached where numba puts them.

Several processes may compile at once. A file of code is written under a new name before the index refers to it, and a
lock lets one process at a time write to the folder. Each file begins with a checksum, because LLVM aborts the process
for some damaged code and runs other damaged code. If a file is damaged or the folder cannot be written, functions are
compiled again.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import logging
import os
import pickle
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    InTreeCacheLocator,
    ZipCacheLocator,
)
from numba.core.registry import cpu_target
from numba.core.runtime.nrt import rtsys

from commitlake.schemas.private_folders import SharedFolderError, make_private_folder

_HERE = Path(__file__).parent
_PACKAGE = _HERE.parents[2]
_FOLDERS = ("connectors", "pipelines", "schemas/layouts")
_FOLDER_VARIABLE = "NUMBA_CACHE_DIR"
_CHECKSUM_BYTES = 16
_NOT_OF_OTHERS = 0o755
_OF_RUNTIME = b"NRT_"
"""Prefix of the functions of numba's runtime, which counts references to arrays."""
_logger = logging.getLogger(__name__)


@functools.cache
def cache_folder() -> Path | None:
    """Return the cache folder for these sources; None if there is no folder that only this user can write to."""
    for root in _candidate_folders():
        try:
            root.mkdir(parents=True, exist_ok=True)
            # `mkdir` succeeds for a folder that exists, also for one that this user cannot write to.
            if os.access(root, os.W_OK | os.X_OK):
                folder = root / f"kernel-{_source_digest()}"
                if not os.environ.get(_FOLDER_VARIABLE):
                    _copy_installed_cache(folder)
                make_private_folder(folder, owners=_trusted_owners(root))
                return folder
        except SharedFolderError as error:
            _logger.warning("%s. Compiled functions are kept elsewhere, or compiled again", error)
        except OSError:
            continue
    return None


def _trusted_owners(root: Path) -> Collection[int]:
    """Return which other users may own the cache folder: the owner of the installation, for one beside it."""
    return {_HERE.stat().st_uid} if root.parent == _HERE else ()


def compiled_function_count() -> int | None:
    """Return the number of compiled functions in the cache folder, or None if there is no usable folder."""
    folder = cache_folder()
    return None if folder is None else sum(1 for _ in folder.glob("*/*.nbc"))


def _copy_installed_cache(folder: Path) -> None:
    """Copy compiled code from an installation that is now read-only, as in a container, to the cache folder.

    Args:
        folder: the folder in the user's cache, or the one beside the source, which needs no copy.
    """
    installed = _HERE / "__pycache__" / folder.name
    if folder.exists() or not installed.is_dir():
        return
    copy = folder.with_name(f"{folder.name}-{uuid.uuid4()}")
    with contextlib.suppress(OSError):  # no space, or another process was first
        shutil.copytree(installed, copy)
        # An installation may be writable for a group; the folder of a user must not be.
        for path in (copy, *copy.rglob("*")):
            path.chmod(path.stat().st_mode & _NOT_OF_OTHERS)
        copy.rename(folder)
    shutil.rmtree(copy, ignore_errors=True)


def _candidate_folders() -> Iterator[Path]:
    # Not numba's own setting, which a file in the current folder can change: loading compiled code runs it.
    if chosen := os.environ.get(_FOLDER_VARIABLE):
        yield Path(chosen) / "commitlake"
    yield _HERE / "__pycache__"
    if chosen := os.environ.get("XDG_CACHE_HOME"):
        yield Path(chosen) / "commitlake"
    else:
        with contextlib.suppress(RuntimeError):  # a user without a home folder
            yield Path.home() / ".cache" / "commitlake"


def _source_digest() -> str:
    digest = hashlib.sha256()
    for name, source in list_sources():
        digest.update(name.encode() + b"\0" + source)
    return digest.hexdigest()[:16]


def list_sources() -> Iterator[tuple[str, bytes]]:
    """Return names and source texts of the modules on which compiled functions depend.

    A module has compiled functions only if it names the decorator, `compiled`, or the module that has it. Constants are
    in the same module, in or below a folder `kernel`, or in the layouts.
    """
    for folder in _FOLDERS:
        for path in _module_paths(f"{_PACKAGE}/{folder}"):
            name, source = path.removeprefix(f"{_PACKAGE}/"), _read_file(path)
            if b"compiled" in source or "/kernel/" in name or folder == "schemas/layouts":
                yield name, source


# Every process reads several hundred modules here, so these do without pathlib and file objects, which take four times
# as long.


def _module_paths(folder: str) -> Iterator[str]:
    """Yield the paths of the modules in a folder and the folders in it, in a fixed order."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False):
                yield from _module_paths(entry.path)
            elif entry.name.endswith(".py"):
                yield entry.path


def _read_file(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def function_cache(function: Callable[..., Any]) -> KernelFunctionCache | None:
    """Return the cache of one function, or None if it cannot be stored."""
    try:
        return KernelFunctionCache(function)
    except RuntimeError as error:  # numba has found no locator
        _logger.info("compiled in every process: %s", error)
        return None


@functools.cache
def _hash_of_file(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


class _KernelCacheLocator(InTreeCacheLocator):
    """Locator of numba that stores compiled functions of a source file in this project's cache folder."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        super().__init__(function, file)
        self._cache_path = str(Path(cache_folder() or "") / self.get_suitable_cache_subpath(file))

    def ensure_cache_path(self) -> None:
        """Create the cache folder for this source file, which only this user can write to."""
        make_private_folder(Path(self._cache_path), owners=_trusted_owners(Path(self._cache_path).parents[1]))
        super().ensure_cache_path()

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """Return the module's name; numba's own method returns a hash of the absolute path."""
        path = Path(py_file)
        if path.is_relative_to(_PACKAGE):
            return ".".join(path.relative_to(_PACKAGE).with_suffix("").parts)
        return str(super().get_suitable_cache_subpath(py_file))

    def get_source_stamp(self) -> str:
        """Return a hash of the source; in some versions of numba it is the time of the last change."""
        return _hash_of_file(self._py_file)

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> InTreeCacheLocator | None:
        """Return a locator; None if the function has no source file, or there is no usable cache folder."""
        return None if cache_folder() is None else super().from_function(function, file)


class _KernelCacheImpl(CompileResultCacheImpl):
    _locator_classes = [_KernelCacheLocator, ZipCacheLocator]  # noqa: RUF012 (numba's own form)


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_CHECKSUM_BYTES).digest()


class KernelCacheFile(IndexDataCacheFile):
    """Index of one function's compiled versions and their files, in the form of numba's cache."""

    def load(self, key: object) -> Any:
        """Return the compiled version for a key, or None if it is missing or damaged."""
        try:
            return super().load(key)
        except Exception as error:  # noqa: BLE001 (unpickling what an older version wrote may raise anything)
            _logger.warning("%s is damaged and will be compiled again (%s)", self._index_path, type(error).__name__)
            return None

    def save(self, key: object, data: object) -> None:
        """Add a compiled version, unless another process has already added it."""
        with self._lock_folder():
            # Checked again under the lock: another process may have compiled the same function while this one waited.
            if self.load(key) is not None:
                return
            try:
                names = dict(self._load_index())
            except Exception:  # noqa: BLE001 (see above)
                names = {}
            replaced = names.get(key)
            # Always a new name: a process that has read the old index may be about to load the old file.
            names[key] = self._data_name_pattern.format(number=uuid.uuid4().int >> 64)
            # The code first, then the index that names it: a process killed in between leaves a file that nothing
            # names.
            self._save_data(names[key], data)
            self._save_index(names)
            if replaced is not None:
                # Only after the index has stopped naming it. If the process is killed before this, the file stays,
                # unused.
                with contextlib.suppress(OSError):
                    Path(self._data_path(replaced)).unlink()

    def _load_index(self) -> dict[object, str]:
        try:
            version, stamp, names = self._read(self._index_path)
        except FileNotFoundError:
            return {}
        return names if (version, stamp) == (self._version, self._source_stamp) else {}

    def _save_index(self, overloads: dict[object, str]) -> None:
        self._write(self._index_path, (self._version, self._source_stamp, overloads))

    def _load_data(self, name: str) -> Any:
        """Return a compiled version from its file, after preparing numba's runtime if the version needs it.

        The kernel's functions do not. Compiling these functions takes twenty milliseconds, and LLVM aborts the process
        if code refers to one that is not there.
        """
        content = self._read_and_verify(self._data_path(name))
        if _OF_RUNTIME in content:
            rtsys.initialize(cpu_target.target_context)
        return pickle.loads(content)  # noqa: S301 (numba's own form, in a folder that is this user's)

    def _save_data(self, name: str, data: object) -> None:
        self._write(self._data_path(name), data)

    def _read(self, path: str) -> Any:
        return pickle.loads(self._read_and_verify(path))  # noqa: S301 (likewise)

    def _read_and_verify(self, path: str) -> bytes:
        stored = Path(path).read_bytes()
        checksum, content = stored[:_CHECKSUM_BYTES], stored[_CHECKSUM_BYTES:]
        if _checksum(content) != checksum:
            raise ValueError(f"the cached code in {path} is damaged: its checksum does not match its content")
        return content

    def _write(self, path: str, value: object) -> None:
        content = self._dump(value)
        with self._open_for_write(path) as file:
            os.fchmod(file.fileno(), os.fstat(file.fileno()).st_mode & _NOT_OF_OTHERS)
            file.write(_checksum(content) + content)

    @contextlib.contextmanager
    def _lock_folder(self) -> Iterator[None]:
        """Lock a folder against other writing processes, if its file system supports locks."""
        descriptor = os.open(self._cache_path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Some network file systems have no locks. Then two processes may both write an index, and one entry is lost
            # and compiled again.
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


class KernelFunctionCache(FunctionCache):
    """numba's cache of a function, in this project's folder."""

    _impl_class = _KernelCacheImpl

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = KernelCacheFile(self._cache_path, self._impl.filename_base, stamp)

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Return the compiled version for a signature, or None if it must be compiled.

        numba's own method first loads the modules of everything that it can compile, which takes a quarter of a second.
        Code that is compiled already needs none of it, and the compiler loads them itself.
        """
        with self._guard_against_spurious_io_errors():
            return self._load_overload(signature, target_context)

    def save_overload(self, signature: Any, data: Any) -> None:
        """Store a compiled version; if that fails, the next process compiles it again."""
        try:
            super().save_overload(signature, data)
        except OSError as error:
            _warn_about_folder(self._cache_path, error.strerror)


@functools.cache
def _warn_about_folder(folder: str, reason: str | None) -> None:
    """Log a warning about an unusable cache folder, once per process instead of once per function."""
    _logger.warning("compiled functions cannot be stored in %s, and are compiled in every process: %s", folder, reason)
