"""Parser for TOML from untrusted sources, which limits the parsing time.

The time of `tomllib` grows with the square of the number of parts of a key: 14 seconds for one key with 20,000 dots.
Deeply nested tables and lists raise RecursionError.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

from commitlake.schemas.errors import CommitLakeError, ExitCode

MAX_BYTES = 1 << 20
"""Largest size of a file with settings; real ones have some KiB."""
MAX_KEY_PARTS = 100
_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+"""
_LONG_KEY = re.compile(rf"(?<![\w-])(?:{_PART}){{{MAX_KEY_PARTS}}}")


class TomlError(CommitLakeError, ValueError):
    """Error for text that is not TOML, or would take too long to parse."""

    exit_code = ExitCode.USAGE


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a TOML document, and refuse one that would take too long to parse.

    Raises:
        TomlError: if it is not TOML, has more than `MAX_BYTES` characters or a key of more than `MAX_KEY_PARTS` parts,
            or nests tables and lists too deeply.
    """
    if len(text) > MAX_BYTES:
        raise TomlError(f"expected a TOML document of at most {MAX_BYTES:,} characters, found {len(text):,} characters")
    if _LONG_KEY.search(text):
        raise TomlError(f"expected keys of at most {MAX_KEY_PARTS} parts, found a longer key")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise TomlError("expected TOML, found tables and lists that are nested too deeply") from None
    except ValueError as error:  # also for a number of more than 4,300 digits
        raise TomlError(str(error)) from None
