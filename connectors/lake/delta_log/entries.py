"""Parsing of JSON in Delta logs from any program: the result is a value or a `ValueError`."""

from __future__ import annotations

import json
import re
from typing import Any

from commitlake.schemas.layouts.integer_parsing import INT64_MAX

OUTSIDE = re.compile(r"^/|^[A-Za-z][A-Za-z0-9+.-]*:|(^|/|%2[fF])(\.|%2[eE]){2}(/|%2[fF]|$)")
"""An absolute path, a URI, or a path with `..`, also percent-encoded as in Delta's log."""
_FILES = ("add", "remove", "cdc")
"""Actions that name a data file."""


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; raise a ValueError also if it is nested too deeply.

    Raises:
        ValueError: if the text is not JSON, is nested too deeply, or has a number of thousands of digits.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("expected JSON, found values that are nested too deeply") from None


def find_commit_info(entry: bytes) -> dict[str, Any] | None:
    """Return the `commitInfo` of a log entry; None if there is none, or it is invalid."""
    for line in entry.splitlines():
        if b'"commitInfo"' in line:
            try:
                info = parse_json(line)["commitInfo"]
            except (ValueError, KeyError, TypeError):
                return None
            return info if isinstance(info, dict) else None
    return None


def parse_row_count(stats: object) -> int | None:
    """Return the number of rows in a data file's statistics; None if they do not state it.

    Raises:
        ValueError: if they are not statistics.
    """
    if stats is None or stats == "":
        return None
    found = parse_json(stats) if isinstance(stats, str) else None
    rows = found.get("numRecords") if isinstance(found, dict) else ""
    if rows is not None and (type(rows) is not int or not 0 <= rows <= INT64_MAX):
        raise ValueError(
            "expected statistics of a data file as a JSON object with its number of rows in numRecords, found "
            f"{str(stats)[:100]!r}"
        )
    return rows


def find_outside_path(action: object) -> str | None:
    """Return the path in a log action if it is outside the table's folder; else None."""
    if not isinstance(action, dict):
        return None
    for kind in _FILES:
        file = action.get(kind)
        path = file.get("path") if isinstance(file, dict) else None
        if isinstance(path, str) and OUTSIDE.search(path):
            return path
    return None


def find_action_fault(action: object) -> str:
    """Return why a value is not a valid action of this lake's logs; empty for a valid one."""
    if not isinstance(action, dict):
        return "expected an object"
    outside = find_outside_path(action)
    if outside is not None:
        return f"expected files of this table, found {outside[:200]!r}"
    for kind in _FILES:
        file = action.get(kind)
        if file is None:
            continue
        if not isinstance(file, dict) or not isinstance(file.get("path"), str):
            return f"expected the path of a file in {kind!r}"
        try:
            parse_row_count(file.get("stats"))
        except ValueError as error:
            return f"statistics of {file['path'][:200]!r}: {error}"
    return ""
