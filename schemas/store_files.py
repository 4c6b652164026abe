"""How files in a folder that others may write to are opened, created and removed; standard library only.

A store may come from anywhere, and who can write into its folder is not always who runs a job on it. So one rule holds
for every file and folder below a store, a lake, or the folder of an unfinished run:

- Names that are read from a file are relative and plain: no `..`, no absolute path, no NUL (`check_relative`).
- Symbolic links are not followed, in any part of the path below the folder that the operator named (`below`). What is
  opened must be a regular file: a FIFO, a socket or a device is an error, and never waited for.
- The folder that the operator named may be a link. For READING only, a store's top-level folders of log, queues and
  index (`commitlog`, `journal`, `consumequeue`, `batchconsumequeue`, `consumequeue_ext`, `queue`, `index`) may be
  links, too, as on a broker that keeps them on several disks. A job that writes, replaces or deletes refuses them.
- A file that is written in place has one name only: a hard link would change a file elsewhere.
- A new file is always created (`create_file`), never opened: what has its name is removed first, as a name.
- Work folders of an earlier run are trusted only if they belong to the user of this process (`check_own_folder`).
- Small files are read up to a limit (`read_file`).

Files that may hold messages are created with the mode 0640 and folders with 0750, less what the user's umask forbids;
jobs run under `restricted_umask`, for what libraries create.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from commitlake.schemas.errors import CommitLakeError, ExitCode

FILE_MODE, FOLDER_MODE = 0o640, 0o750
MAX_SMALL_FILE_BYTES = 64 << 20
"""Of a JSON file, checkpoint or control file: RocketMQ's offsets of 10,000 groups in 50 queues take some 20 MiB."""
MAX_NAME_BYTES = 4096
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISREG, "a file"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISCHR, "a device"),
)


class UnsafeFileError(CommitLakeError, OSError):
    """Something in a store's folder is not what may be there: a link, a FIFO, another user's work folder."""

    exit_code = ExitCode.USAGE

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"

    @classmethod
    def of(cls, path: str | Path, expected: str, found: str, number: int = errno.ELOOP) -> UnsafeFileError:
        """Make the error; its arguments are those of any OSError, so that it can go from process to process."""
        return cls(number, f"expected {expected}, found {found}", str(path))


def check_relative(name: str) -> PurePosixPath:
    """Return a name that was read from a file as a path below some folder.

    Raises:
        UnsafeFileError: if it is absolute, empty, too long, or leads out of the folder.
    """
    path = PurePosixPath(name)
    parts = name.split("/")
    is_long = len(name) > MAX_NAME_BYTES
    if is_long or "\0" in name or path.is_absolute() or not set(parts).isdisjoint({"", ".", ".."}):
        found = repr(name[:100]) + ("..." if len(name) > 100 else "")
        raise UnsafeFileError.of(found, "a relative path without '..'", "another", errno.EINVAL)
    return path


def kind_of(mode: int) -> str:
    """Name the kind of file that a mode stands for."""
    return next((text for is_kind, text in _KINDS if is_kind(mode)), "a file of an unknown kind")


@contextmanager
def open_parent(path: Path, below: Path) -> Iterator[int]:
    """Open the folder that holds `path`; links are followed up to `below`, and not from there on.

    Args:
        path: of a file or folder.
        below: a folder above it, which may be a link.

    Yields:
        A descriptor for `dir_fd`.

    Raises:
        FileNotFoundError: if a folder is missing.
        UnsafeFileError: if a part of the path is a link or no folder.
    """
    with _open_folders(path.parent, below) as descriptor:
        yield descriptor


@contextmanager
def _open_folders(path: Path, below: Path) -> Iterator[int]:
    """Open a folder that is `below` or below it, one part of its path after another."""
    parts = path.parts[len(below.parts) :]
    if path.parts[: len(below.parts)] != below.parts or ".." in parts:
        raise ValueError(f"{path}: expected a path below {below}")
    descriptor = os.open(below, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for depth, part in enumerate(parts, len(below.parts) + 1):
            descriptor = _open_folder(descriptor, part, Path(*path.parts[:depth]))
        yield descriptor
    finally:
        os.close(descriptor)


def _open_folder(parent: int, name: str, path: Path) -> int:
    """Open a folder within an open one, and close that; on an error the caller closes it."""
    try:
        found = os.open(name, _FOLDER, dir_fd=parent)
    except OSError as error:
        if error.errno in {errno.ENOTDIR, errno.ELOOP}:
            mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
            raise UnsafeFileError.of(path, "a folder", kind_of(mode)) from None
        raise type(error)(error.errno, error.strerror, str(path)) from None
    os.close(parent)
    return found


def open_file(
    path: str | Path, flags: int = os.O_RDONLY, *, below: Path | None = None, may_have_names: bool = False
) -> int:
    """Open a regular file that is there; its descriptor.

    Args:
        path: the file.
        flags: for `os.open`.
        below: the folder from which on no part of the path may be a link; by default the file's own folder.
        may_have_names: several hard links are no error, although the file is opened to be written to.

    Raises:
        FileNotFoundError: if it is not there.
        UnsafeFileError: if it is a link or no regular file; or it is to be written to, and has several names.
    """
    path = Path(path)
    if below is None or path.parent == below:
        return _open_file(path, str(path), flags, None, may_have_names)
    with open_parent(path, below) as parent:
        return _open_file(path, path.name, flags, parent, may_have_names)


def _open_file(path: Path, name: str, flags: int, parent: int | None, may_have_names: bool) -> int:
    is_one_name_needed = flags & os.O_ACCMODE != os.O_RDONLY and not may_have_names
    try:
        # Seen before it is opened: to open a device can be an action.
        _check_regular(path, os.stat(name, dir_fd=parent, follow_symlinks=False), is_one_name_needed)
        descriptor = os.open(name, flags | _SAFELY, dir_fd=parent)
    except UnsafeFileError:
        raise
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from None
    try:
        _check_regular(path, os.fstat(descriptor), is_one_name_needed)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_regular(path: Path, status: os.stat_result, is_one_name_needed: bool) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeFileError.of(path, "a regular file", kind_of(status.st_mode))
    if is_one_name_needed and status.st_nlink > 1:
        names = f"{status.st_nlink} hard links: to write to it would change another file, so copy it"
        raise UnsafeFileError.of(path, "a file with one name", names, errno.EMLINK)


def read_file(path: Path, *, below: Path | None = None, limit: int = MAX_SMALL_FILE_BYTES) -> bytes:
    """Read a small file.

    Args:
        path: the file.
        below: as for `open_file`.
        limit: the most bytes that it may have.

    Raises:
        FileNotFoundError: if it is not there.
        UnsafeFileError: as for `open_file`, and if it is larger.
    """
    with os.fdopen(open_file(path, below=below), "rb", buffering=0) as file:
        pieces = []
        left = limit + 1
        while left and (piece := file.read(min(left, 1 << 20))):
            pieces.append(piece)
            left -= len(piece)
        if not left:
            size = os.fstat(file.fileno()).st_size
            raise UnsafeFileError.of(path, f"at most {limit} bytes", f"{size}", errno.EFBIG)
    return b"".join(pieces)


@contextmanager
def restricted_umask() -> Iterator[int]:
    """Let all files that this process and its children make meanwhile have no more rights than FILE_MODE has.

    That is for files that libraries make, which know no mode: the log of a Delta table, say. The umask is one for all
    threads of a process.

    Yields:
        The umask.
    """
    before = os.umask(0o077)
    umask = before | (0o777 & ~FOLDER_MODE)
    os.umask(umask)
    try:
        yield umask
    finally:
        os.umask(before)


def read_json(path: Path, *, below: Path | None = None) -> Any:
    """Read a document that this program wrote; see `read_file`.

    Raises:
        ValueError: if it is no JSON, or nested too deep.
    """
    try:
        return json.loads(read_file(path, below=below))
    except RecursionError:
        raise ValueError(f"{path}: expected JSON, found a document that is nested too deep") from None


def create_file(path: Path, *, below: Path | None = None, replace: bool = True) -> int:
    """Create an empty file to write to; its descriptor.

    Args:
        path: the file.
        below: as for `open_file`.
        replace: remove a file, a link or a FIFO of its name first; nothing that it leads to is touched.

    Raises:
        FileExistsError: if there is one, and it is not to be replaced.
        UnsafeFileError: if there is a folder of this name, or a part of the path is a link.
    """
    with open_parent(path, path.parent if below is None else below) as parent:
        try:
            if replace:
                os.unlink(path.name, dir_fd=parent)
        except FileNotFoundError:
            pass
        except IsADirectoryError:
            raise UnsafeFileError.of(path, "a file or nothing", "a folder") from None
        return _create(path, parent)


def _create(path: Path, parent: int, flags: int = os.O_RDWR) -> int:
    try:
        return os.open(path.name, flags | os.O_CREAT | os.O_EXCL | _SAFELY, FILE_MODE, dir_fd=parent)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from None


def open_or_create(path: Path, flags: int = os.O_RDWR, *, may_have_names: bool = False) -> int:
    """Open a regular file to write to, or create it where it is not there; see `open_file`."""
    while True:
        with suppress(FileNotFoundError):
            return open_file(path, flags, may_have_names=may_have_names)
        with suppress(FileExistsError), open_parent(path, path.parent) as parent:  # made by another process just now
            return _create(path, parent, flags)


def remove_file(path: Path, *, below: Path | None = None) -> None:
    """Remove a file, or a link itself, whose folder is reached through no link.

    Raises:
        FileNotFoundError: if it is not there.
        UnsafeFileError: if a part of the path before its name is a link.
    """
    with open_parent(path, path.parent if below is None else below) as parent:
        try:
            os.unlink(path.name, dir_fd=parent)
        except OSError as error:
            raise type(error)(error.errno, error.strerror, str(path)) from None


def rename_file(path: Path, new: Path, *, below: Path) -> None:
    """Rename a file, a folder, or a link itself; a file of the new name is replaced.

    Raises:
        UnsafeFileError: if a part of one of the paths before its name is a link.
    """
    with open_parent(path, below) as source, open_parent(new, below) as target:
        try:
            os.rename(path.name, new.name, src_dir_fd=source, dst_dir_fd=target)
        except OSError as error:
            raise type(error)(error.errno, error.strerror, str(path)) from None


def remove_tree(path: Path) -> None:
    """Remove a folder with all that is in it, or a file; of a link only the link. Nothing there is no error."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        shutil.rmtree(path)  # follows no link
    else:
        path.unlink()


def make_folders(path: Path, *, below: Path | None = None) -> None:
    """Make a folder and those above it that are missing.

    Args:
        path: the folder.
        below: from here on no part of the path may be a link; without it they may all be.

    Raises:
        UnsafeFileError: if a part of the path is a link or no folder.
    """
    if below is None:
        missing = []
        folder = path
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for new in reversed(missing):
            new.mkdir(FOLDER_MODE, exist_ok=True)  # another task may make it, too
        if not path.is_dir():
            raise UnsafeFileError.of(path, "a folder", kind_of(path.stat().st_mode))
        return
    make_folders(below)
    if path == below:
        return
    for depth in range(len(below.parts) + 1, len(path.parts) + 1):
        folder = Path(*path.parts[:depth])
        with open_parent(folder, below) as parent:
            with suppress(FileExistsError):
                os.mkdir(folder.name, FOLDER_MODE, dir_fd=parent)
            mode = os.stat(folder.name, dir_fd=parent, follow_symlinks=False).st_mode
        if not stat.S_ISDIR(mode):
            raise UnsafeFileError.of(folder, "a folder", kind_of(mode))


def sync_folder(folder: Path) -> None:
    """Put a folder's list of files on the disk: a new file is lost with the machine until that was done."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_folder(path: Path, why: str = "") -> bool:
    """See that a folder which will be changed is no link; tell whether it is there.

    Args:
        path: the folder.
        why: words for the error, behind what was found.

    Raises:
        UnsafeFileError: if it is anything but a folder.
    """
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    if not stat.S_ISDIR(mode):
        raise UnsafeFileError.of(path, "a folder", kind_of(mode) + why)
    return True


def check_own_folder(path: Path) -> bool:
    """See that a work folder was left by a run of this user; tell whether it is there.

    Raises:
        UnsafeFileError: if it is a link, no folder, or another user's.
    """
    if not check_folder(path):
        return False
    owner = path.lstat().st_uid
    if owner != os.geteuid():
        found = f"one of user {owner}: remove it, or run as that user"
        raise UnsafeFileError.of(path, f"a folder of user {os.geteuid()}", found, errno.EPERM)
    return True


def check_tree(folder: Path, most: int | None = None) -> None:
    """See that a folder has only folders and regular files in it, at any depth.

    Raises:
        UnsafeFileError: naming the first that is something else, or if there are more than `most`.
    """
    count = 0
    todo = [folder]
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                count += 1
                if most is not None and count > most:
                    raise UnsafeFileError.of(folder, f"at most {most} files", "more", errno.EFBIG)
                if entry.is_dir(follow_symlinks=False):
                    todo.append(Path(entry.path))
                elif not entry.is_file(follow_symlinks=False):
                    mode = entry.stat(follow_symlinks=False).st_mode
                    raise UnsafeFileError.of(entry.path, "a file or a folder", kind_of(mode))


def newest_file(folder: Path, names: Sequence[str]) -> str:
    """Return the name of the file that was written last; the first of the names where none of the files is there."""
    times = {}
    for name in names:
        with suppress(OSError):
            times[name] = (folder / name).lstat().st_mtime_ns
    return max(times, key=lambda name: times[name], default=names[0])


def folders_in(folder: Path, *, below: Path | None = None) -> list[str]:
    """List the names of the folders in a folder, sorted; none where it is not there.

    Args:
        folder: it may be a link itself, if `below` is not given.
        below: from here on no part of its path may be a link.

    Raises:
        UnsafeFileError: for a link, which could be a folder that is left out.
    """
    return sorted(name for name, mode in _entries(folder, below) if _is_folder(folder / name, mode))


def _is_folder(path: Path, mode: int) -> bool:
    if stat.S_ISLNK(mode):
        raise UnsafeFileError.of(path, "a folder", kind_of(mode))
    return stat.S_ISDIR(mode)


def files_in(
    folder: Path, is_wanted: Callable[[str], bool] = lambda _: True, *, below: Path | None = None
) -> list[str]:
    """List the names of the regular files in a folder that are wanted, sorted; none where it is not there.

    Folders are left out; for `below` see `folders_in`.

    Raises:
        UnsafeFileError: for a link, a FIFO, a socket or a device of such a name.
    """
    names = []
    for name, mode in _entries(folder, below):
        if not is_wanted(name) or stat.S_ISDIR(mode):
            continue
        if not stat.S_ISREG(mode):
            raise UnsafeFileError.of(folder / name, "a regular file", kind_of(mode))
        names.append(name)
    return sorted(names)


def _entries(folder: Path, below: Path | None) -> list[tuple[str, int]]:
    """Names and modes of what is in a folder."""
    try:
        with _open_folders(folder, folder if below is None else below) as parent:
            descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
    except (FileNotFoundError, NotADirectoryError):
        return []
    try:
        with os.scandir(descriptor) as entries:
            return [(entry.name, _mode_of(entry)) for entry in entries]
    finally:
        os.close(descriptor)


def _mode_of(entry: os.DirEntry[str]) -> int:
    """The kind of an entry, without a system call where the folder tells it."""
    if entry.is_file(follow_symlinks=False):
        return stat.S_IFREG
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR
    return entry.stat(follow_symlinks=False).st_mode
