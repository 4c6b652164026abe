"""Python environment for a cluster's executors: an archive with this package and its requirements.

Spark unpacks an archive (`--archives`) in the working folder of each executor, where it is the folder `NAME`. It has
the installed packages that this one requires, with their compiled modules and functions, and `bin/python`, a script
that starts the executor's own Python with them, see `executor_start`. That Python must be of the same minor version.
PySpark is not in it: executors use the one that belongs to their Spark. Packages that only the driver uses are left
out, too, unless the cluster also runs the driver.

Spark starts workers on executors, and some on the driver, which plan reads. All use the same path to a Python. The path
is therefore relative: in an executor's working folder it leads to the archive, and in the folder where the driver's JVM
works, to the driver's Python.

Spark's documentation recommends venv-pack. It has had no release since 2018, packs the whole environment, and cannot
pack an editable installation. A PEX file would have to be built from packages that are downloaded again.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shlex
import sys
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from packaging.requirements import Requirement

from commitlake.connectors.spark.executor_start import DIGEST, FILES
from commitlake.schemas.private_folders import make_private_folder

NAME = "commitlake-env"
PYTHON = f"./{NAME}/bin/python"
"""Path of the Python, on executors and on the driver."""
_PROJECT = "commitlake"
_PACKAGE = Path(__file__).parents[2]
_FROM_SPARK = frozenset({"pyspark", "py4j", "delta-spark"})
_EXTRAS = ("", "spark", "hbase", "s3", "azure", "gcs", "hdfs")  # what tasks import; Spark's workers need pandas
_DRIVER_EXTRAS = ("quality", "metrics", "openlineage")
_ONLY_ON_DRIVER = frozenset({"great-expectations"})  # it judges profiles there, and brings 150 MB of packages
_UNUSED_FOLDERS = frozenset({"tests", "test", "include", "examples"})
_COMPRESSION_LEVEL = 1  # the network to executors is fast, and the user waits for the packing
_LAUNCHER = """#!/bin/sh
# Start this executor's Python {version} with the packages beside this script.
root=${{0%/bin/*}}
for python in {candidates}; do
  if "$python" -I -c 'import sys; sys.exit(sys.version_info[:2] != {numbers})' 2>/dev/null; then
    exec "$python" -I -S -c '{program}' "$root/bin" "$root" "$@"
  fi
done
echo "commitlake: expected Python {version} on $(hostname), found none of: {candidates}" >&2
echo "commitlake: install it there, or name a Python that has commitlake, in PYSPARK_PYTHON" >&2
exit 127
"""
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from commitlake.connectors.spark.executor_start import main; main(sys.argv[2:])"
)
_OF_START = ("connectors/spark/executor_start.py", "schemas/private_folders.py", "schemas/errors.py")
"""Modules that run before the packages are found, without those of the Python; they are packed beside the script."""
_PRIVATE = 0o700
_NOT_OF_OTHERS = 0o755


class ArchiveMember(NamedTuple):
    """A file to be packed into the archive for executors.

    Attributes:
        name: name in the archive.
        path: file to pack.
    """

    name: str
    path: Path


def executor_archive(*, includes_driver: bool = False) -> Path:
    """Return the archive for executors; make it, unless the user's cache has it for the installed versions.

    Args:
        includes_driver: also pack what only the driver uses, because the cluster runs it, too.

    Raises:
        OSError: if the cache folder cannot be written, or others can write to it.
    """
    members = sorted(
        {member.name: member for member in _list_archive_members(includes_driver=includes_driver)}.values()
    )
    folder = _cache_folder()
    make_private_folder(folder, _PRIVATE)
    archive = folder / f"{NAME}-{_archive_members_digest(members)}.tar.gz"
    if not archive.exists():
        unfinished = archive.with_suffix(f".{os.getpid()}.tmp")
        whose = "driver and executors" if includes_driver else "executors"
        print(f"packing the Python environment for the cluster's {whose}, once", file=sys.stderr)
        try:
            _write_archive(members, unfinished)
            unfinished.replace(archive)
        finally:
            unfinished.unlink(missing_ok=True)
        _delete_old_archives(folder, archive)
    return archive


def driver_folder(name: str = PYTHON) -> Path:
    """Return a working folder for the driver's JVM, in which a relative path leads to this process's Python.

    Spark plans reads of a Python data source in a worker of the driver, which it starts by the path that executors use.

    Args:
        name: that path, without `..`.

    Raises:
        OSError: if the cache folder cannot be written, or others can write to it.
    """
    key = hashlib.sha256(f"{sys.executable}\0{name}".encode()).hexdigest()[:16]
    cache = _cache_folder()
    make_private_folder(cache, _PRIVATE)
    folder = cache / f"driver-{key}"
    python = folder / name
    if not python.exists():
        python.parent.mkdir(parents=True, exist_ok=True)
        unfinished = python.with_suffix(f".{os.getpid()}.tmp")
        unfinished.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
        unfinished.chmod(0o755)
        unfinished.replace(python)
    return folder


def _cache_folder() -> Path:
    chosen = os.environ.get("XDG_CACHE_HOME")
    return (Path(chosen) if chosen else Path.home() / ".cache") / "commitlake" / "environments"


def _delete_old_archives(folder: Path, kept_archive: Path) -> None:
    """Delete archives of other versions, except the newest one, which another installation may be sending."""
    archives = sorted(folder.glob(f"{NAME}-*.tar.gz"), key=lambda path: path.stat().st_mtime)
    for archive in archives[:-2]:
        if archive != kept_archive:
            archive.unlink(missing_ok=True)


def _list_archive_members(*, includes_driver: bool) -> Iterator[ArchiveMember]:
    for distribution in _list_distributions(includes_driver=includes_driver):
        for file in distribution.files or []:
            path = Path(str(distribution.locate_file(file)))
            if ".." not in file.parts and not _UNUSED_FOLDERS.intersection(file.parts[1:-1]) and path.is_file():
                yield ArchiveMember(file.as_posix(), path)
                yield from _bytecode_archive_member(file, path)
    yield from _package_archive_members()


def _package_archive_members() -> Iterator[ArchiveMember]:
    """Yield the archive members for this package's files, also of an editable installation."""
    for folder, subfolders, names in os.walk(_PACKAGE, followlinks=True):
        subfolders[:] = [name for name in subfolders if name != "__pycache__"]
        for name in names:
            path = Path(folder, name)
            file = PurePosixPath(_PROJECT, path.relative_to(_PACKAGE).as_posix())
            yield ArchiveMember(file.as_posix(), path)
            yield from _bytecode_archive_member(file, path)
    yield from _metadata_archive_member()
    from commitlake.connectors.reading.kernel.function_cache import cache_folder  # noqa: PLC0415 (numba)

    functions = cache_folder()
    if functions is not None and functions.is_dir():
        for path in functions.rglob("*.nb[ic]"):
            beside = PurePosixPath(_PROJECT, "connectors/reading/kernel/__pycache__", functions.name)
            yield ArchiveMember((beside / path.relative_to(functions).as_posix()).as_posix(), path)


def _metadata_archive_member() -> Iterator[ArchiveMember]:
    """Yield the archive member for the file METADATA, which states the version."""
    with suppress(metadata.PackageNotFoundError):
        for file in metadata.distribution(_PROJECT).files or []:
            if file.parent.suffix == ".dist-info" and file.name == "METADATA":
                yield ArchiveMember(file.as_posix(), Path(str(file.locate())))


def _bytecode_archive_member(file: PurePosixPath, path: Path) -> Iterator[ArchiveMember]:
    """Yield the archive member for a module's cached bytecode, if any, so that executors need not compile it."""
    name = f"{path.stem}.{sys.implementation.cache_tag}.pyc"
    compiled = path.parent / "__pycache__" / name
    if path.suffix == ".py" and compiled.is_file():
        yield ArchiveMember((file.parent / "__pycache__" / name).as_posix(), compiled)


def _list_distributions(*, includes_driver: bool) -> Iterator[metadata.Distribution]:
    """Yield the installed distributions that executors need, directly or indirectly."""
    waiting, seen = [_PROJECT], {*_FROM_SPARK, *(() if includes_driver else _ONLY_ON_DRIVER)}
    own_extras = (*_EXTRAS, *_DRIVER_EXTRAS) if includes_driver else _EXTRAS
    while waiting:
        key = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if key in seen:
            continue
        seen.add(key)
        try:
            distribution = metadata.distribution(key)
        except metadata.PackageNotFoundError:
            continue  # it is optional, or for another system
        extras = own_extras if key == _PROJECT else ("",)
        for text in distribution.requires or []:
            requirement = Requirement(text)
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(requirement.name)
        if key != _PROJECT:
            yield distribution


def _archive_members_digest(members: list[ArchiveMember]) -> str:
    digest = hashlib.sha256(_launcher_script().encode())
    for name, path in members:
        if path.suffix == ".nbi":
            digest.update(f"{name}\n".encode())
        if "__pycache__" in path.parts:
            continue  # Python adds compiled modules as they are used
        status = path.stat()
        digest.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _launcher_script() -> str:
    version = ".".join(map(str, sys.version_info[:2]))
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    candidates = dict.fromkeys([str(base), f"python{version}", "python3"])
    numbers = repr(tuple(sys.version_info[:2]))
    return _LAUNCHER.format(
        version=version, candidates=" ".join(map(shlex.quote, candidates)), numbers=numbers, program=_PROGRAM
    )


def _write_archive(members: list[ArchiveMember], archive: Path) -> None:
    """Pack the archive: the packages, a list of their files, what starts Python, and last the digest of the content."""
    digest = hashlib.sha256()
    sizes: dict[str, int] = {}
    folders: set[str] = set()
    with tarfile.open(archive, "x:gz", compresslevel=_COMPRESSION_LEVEL) as packed:
        for name, path in members:
            information = packed.gettarinfo(path, f"lib/{name}")
            # Compiled modules name the time of their source in whole seconds.
            information.mtime = int(information.mtime)
            information.mode &= _NOT_OF_OTHERS
            information.uid = information.gid = 0
            information.uname = information.gname = ""
            _add_parent_folders(packed, PurePosixPath(information.name), folders)
            with path.open("rb") as file:
                content = file.read(information.size)
            packed.addfile(information, io.BytesIO(content))
            if "__pycache__" not in path.parts:  # not what was compiled from the other files, which grows with use
                sizes[name] = len(content)
                digest.update(f"{name}\0{len(content)}\0".encode() + content)
        _add_text(packed, f"lib/{FILES}", json.dumps(sizes))
        for name in _OF_START:
            _add_text(packed, f"bin/{_PROJECT}/{name}", (_PACKAGE / name).read_text())
        _add_text(packed, "bin/python", _launcher_script(), 0o755)
        _add_text(packed, DIGEST, digest.hexdigest())


def _add_parent_folders(archive: tarfile.TarFile, name: PurePosixPath, added_folders: set[str]) -> None:
    """Add a file's missing parent folders to the archive, so that they are not unpacked with too wide permissions."""
    for folder in reversed(name.parents[:-1]):
        if str(folder) not in added_folders:
            added_folders.add(str(folder))
            information = tarfile.TarInfo(str(folder))
            information.type, information.mode = tarfile.DIRTYPE, _NOT_OF_OTHERS
            archive.addfile(information)


def _add_text(archive: tarfile.TarFile, name: str, text: str, mode: int = 0o644) -> None:
    content = text.encode()
    information = tarfile.TarInfo(name)
    information.size, information.mode = len(content), mode
    archive.addfile(information, io.BytesIO(content))
