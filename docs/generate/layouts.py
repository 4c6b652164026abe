"""Make the reference of file formats: the byte layouts, and the prose of the modules that declare them."""

from __future__ import annotations

import importlib
import struct
from types import ModuleType

from commitlake.schemas.layouts.base import Layout
from docs.generate.prose import markdown_of, table

FORMATS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "RocketMQ",
        (
            ("CommitLog", "rocketmq.commitlog"),
            ("ConsumeQueue", "rocketmq.consumequeue"),
            ("BatchConsumeQueue", "rocketmq.batchconsumequeue"),
            ("IndexFile", "rocketmq.indexfile"),
            ("Checkpoint", "rocketmq.checkpoint"),
            ("Timers", "rocketmq.timers"),
        ),
    ),
    ("BoltMQ", (("CommitLog, a dialect", "boltmq.dialect"),)),
    (
        "JMQ",
        (
            ("Journal", "jmq.journal"),
            ("Queue", "jmq.queue_file"),
            ("Checkpoint of a JMQ store", "jmq.checkpoint"),
            ("Consumption", "jmq.consume_records"),
        ),
    ),
)
_TYPES = {
    "b": "int8",
    "B": "uint8",
    "h": "int16",
    "H": "uint16",
    "i": "int32",
    "I": "uint32",
    "q": "int64",
    "Q": "uint64",
}
_INTRO = """# File formats

CommitLake declares each file format once. The readers, the writers and this page are made from the same declarations.
All numbers are big-endian. Offsets are bytes from the beginning of the region.

RocketMQ's formats are those of 4.9 and 5.x. [Architecture](../architecture.md) says which code reads them.
"""


def page() -> str:
    """Return the page of all formats."""
    parts = [_INTRO]
    for broker, files in FORMATS:
        parts.append(f"## {broker}")
        for title, name in files:
            module = importlib.import_module(f"commitlake.schemas.layouts.{name}")
            parts += [f"### {title}", markdown_of(module.__doc__), *_regions(module)]
    return "\n\n".join(parts) + "\n"


def _regions(module: ModuleType) -> list[str]:
    found = [(name, value) for name, value in vars(module).items() if isinstance(value, Layout)]
    return [
        f"`{name}`, {layout.size} bytes:\n\n{_fields(layout)}"
        for name, layout in found
        if not name.startswith("_") and vars(layout)["fields"]
    ]


def _fields(layout: Layout) -> str:
    rows = (
        (
            str(layout.offset_of(field.name)),
            str(struct.calcsize(">" + field.code)),
            _TYPES[field.code],
            f"`{field.name}`",
            field.note,
        )
        for field in layout.fields
    )
    return table(("Offset", "Bytes", "Type", "Field", "Meaning"), rows)
