"""The messages that the page on troubleshooting explains are messages of the code."""

from __future__ import annotations

import re

from tests.support.snippets import DOCS
from tests.support.source_tree import FOLDERS, ROOT, python_files


def test_each_message_is_in_the_code() -> None:
    page = (DOCS / "operations" / "troubleshooting.md").read_text(encoding="utf-8")
    messages = re.findall(r"^### `(.+)`$", page, re.MULTILINE)
    assert len(messages) > 8
    code = "\n".join((ROOT / path).read_text(encoding="utf-8") for folder in FOLDERS for path in python_files(folder))
    joined = re.sub(r'"\s*\n\s*f?"', "", code)  # a text over several lines
    parts = [part.strip() for message in messages for part in message.split("…") if len(part.strip()) > 2]
    plain = re.sub(r"\{[^{}]*\}", "{}", joined)
    assert [part for part in parts if part not in plain and part not in joined] == []
