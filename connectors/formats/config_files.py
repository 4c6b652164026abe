"""Configuration files of a broker, each with a `.bak` that has its previous content.

If a file is missing, empty or cannot be decoded, a broker starts with its `.bak`. After a crash, files may be shorter,
be full of NULs, or end with a part of an older, longer text. Source: org.apache.rocketmq.common.ConfigManager of
RocketMQ 4.9.7 and 5.5.0, whose JSON parsers refuse all of these; JMQ's offset file is written and read in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from commitlake.connectors.log_format.checkpoint_and_config import Problems
from commitlake.schemas.safe_store_files import MAX_SMALL_FILE_BYTES, UnsafeFileError, read_file

T = TypeVar("T")
BACKUP = ".bak"
_MISSING = "no such file"


class ConfigFile(NamedTuple, Generic[T]):
    """Content of a configuration file that a broker would load, or of its backup `.bak`.

    Attributes:
        content: its content; None if neither the file nor its `.bak` can be used.
        name: the file that has this content, relative to the store's folder.
        problem: why the file itself is not used; empty if it is, or if neither file exists.
    """

    content: T | None
    name: str
    problem: str = ""

    @property
    def is_backup(self) -> bool:
        """True if the content was read from the file's backup `.bak`."""
        return self.content is not None and bool(self.problem)


def read_config(
    root: Path, name: str, parse: Callable[[bytes], T], *, max_bytes: int = MAX_SMALL_FILE_BYTES
) -> ConfigFile[T]:
    """Read a configuration file of a store, or its backup `.bak` if the file is missing or invalid.

    Args:
        root: the store's folder.
        name: the file, relative to it.
        parse: converts the file's bytes to its content; raises ValueError.
        max_bytes: maximum size of the file, bytes.

    Raises:
        UnsafeFileError: if the file or its folder is a link, is not a regular file, or is larger than the limit.
    """
    problems: list[str] = []
    for file in (name, f"{name}{BACKUP}"):
        try:
            if data := read_file(root / file, trusted_root=root, limit=max_bytes):
                return ConfigFile(parse(data), file, problems[0] if problems else "")
            problems.append("0 bytes")
        except UnsafeFileError:
            raise
        except FileNotFoundError:
            problems.append(_MISSING)
        except OSError as error:
            problems.append(error.strerror or str(error))
        except ValueError as error:
            problems.append(str(error))
    return ConfigFile(None, name, "" if problems == [_MISSING, _MISSING] else problems[0])


def report_backup_use(
    problems: Problems, name: str, config_file: ConfigFile[Any], expected: str, *, is_live: bool
) -> None:
    """Report as a problem that a file has invalid content, or that its backup `.bak` is used instead.

    Args:
        problems: collects the problems of the store's files.
        name: the file.
        config_file: what was read instead.
        expected: the expected content, in words.
        is_live: whether a broker has the store open. It removes a file for a moment when it writes a new one.
    """
    if config_file.is_backup and not (is_live and config_file.problem == _MISSING):
        problems.note("config_from_backup", name, found=config_file.problem, expected=expected)
    elif config_file.problem and not config_file.is_backup:
        problems.note("offsets_unreadable", name, found=config_file.problem, expected=expected)
