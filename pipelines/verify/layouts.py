"""What is checked otherwise in each layout of a store; all else is the same code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

from commitlake.connectors.formats.engine.layouts import StoreLayout
from commitlake.pipelines.verify.findings import Findings
from commitlake.pipelines.verify.small_files import Bounds, SmallFiles
from commitlake.pipelines.verify.store_view import StoreView


@dataclass(frozen=True)
class StoreChecks:
    """What differs between layouts.

    Attributes:
        own_offset: the physical offset that a record says of itself, from its first bytes; None where they are too few.
        read_small_files: checkpoint and offsets as they are, by (store's folder, findings of a class that are kept,
            whether a broker has it open); what cannot be read is a finding, and otherwise as if it were not there.
        check_checkpoint: the checkpoint against records and queues, besides what `check_marks` sees.
    """

    own_offset: Callable[[memoryview], int | None]
    read_small_files: Callable[[Path, int, bool], SmallFiles]
    check_checkpoint: Callable[[StoreView, SmallFiles, Bounds, Findings], None]


_CHECKS = {
    StoreLayout.COMMITLOG: "commitlake.pipelines.verify.commitlog_checks",
    StoreLayout.JOURNAL: "commitlake.pipelines.verify.journal_checks",
}


@cache
def checks_of(layout: StoreLayout) -> StoreChecks:
    """The checks of a layout."""
    checks: StoreChecks = import_module(_CHECKS[layout]).CHECKS
    return checks
