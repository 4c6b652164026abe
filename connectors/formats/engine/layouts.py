"""The layouts of a log that can be read, and what is known of each without its kernel.

A layout is found from the folder that holds the segments. Whoever walks, plans or divides a log asks the layout's rules
(here, standard library only) and its kernel (`kernels`) for what differs; all else is the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import import_module
from typing import Any

from commitlake.schemas.layouts.rocketmq.scan import Bounds, Finding, SegmentScanner


class StoreLayout(StrEnum):
    """How a store keeps its log; the value is the name of the folder."""

    COMMITLOG = "commitlog"
    JOURNAL = "journal"


ROCKETMQ = (StoreLayout.COMMITLOG,)
ALL_LAYOUTS = tuple(StoreLayout)


class LayoutChoice(StrEnum):
    """Which stores of a path are meant."""

    COMMITLOG = "commitlog"
    JOURNAL = "journal"
    ANY = "any"

    @property
    def layouts(self) -> tuple[StoreLayout, ...]:
        """Those that fit."""
        return ALL_LAYOUTS if self is LayoutChoice.ANY else (StoreLayout(self),)


@dataclass(frozen=True)
class LayoutRules:
    """What is known of a layout without its kernel.

    Attributes:
        examine: tells what stands at a position, as `schemas.layouts.rocketmq.scan.examine` does.
        scanner: makes what turns windows of a segment into spans, from a physical offset on.
        parse: the message at the start of these bytes, and its size; its checksum is not compared.
        vouches: whether the bytes of a store's `checkpoint` say that a message's record is on the disk; the last
            argument tells whether a broker has closed the store since.
        row_of: a message and its broker's name as a row of `messages`, timestamps as ms, without the body.
        size_of: what the first bytes of a record or a filler say of its size.
        is_filler: whether these first bytes are those of a filler.
        head_bytes: how many first bytes these two look at.
        known_bytes: how many first bytes of a record tell it from every other one, and lie before its body.
    """

    examine: Callable[[memoryview, int, int, Bounds], Finding]
    scanner: Callable[[int, Bounds], SegmentScanner]
    parse: Callable[[memoryview], tuple[Any, int] | None]
    vouches: Callable[[bytes, Any, bool], bool]
    row_of: Callable[[Any, str], dict[str, object]]
    size_of: Callable[[memoryview], int]
    is_filler: Callable[[memoryview], bool]
    head_bytes: int
    known_bytes: int


_RULES = {
    StoreLayout.COMMITLOG: "commitlake.connectors.formats.rocketmq.rules",
    StoreLayout.JOURNAL: "commitlake.connectors.formats.jmq.rules",
}


@cache
def rules_of(layout: StoreLayout) -> LayoutRules:
    """The rules of a layout."""
    rules: LayoutRules = import_module(_RULES[layout]).RULES
    return rules


def folder_names(layouts: Sequence[StoreLayout]) -> str:
    """The layouts' folders, for a message."""
    return " or ".join(f"'{layout}'" for layout in layouts)
