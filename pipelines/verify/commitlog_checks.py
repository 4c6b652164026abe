"""What is checked in RocketMQ's stores alone; see `layouts`."""

from __future__ import annotations

from commitlake.pipelines.verify.findings import Findings
from commitlake.pipelines.verify.layouts import StoreChecks
from commitlake.pipelines.verify.small_files import Bounds, SmallFiles, read_small_files
from commitlake.pipelines.verify.store_view import StoreView
from commitlake.schemas.layouts.rocketmq.commitlog import HEAD

_OFFSET = [declared.name for declared in HEAD.fields].index("physical_offset")


def _own_offset(head: memoryview) -> int | None:
    return int(HEAD.unpack(head)[_OFFSET]) if len(head) >= HEAD.size else None


def _check_checkpoint(view: StoreView, files: SmallFiles, bounds: Bounds, findings: Findings) -> None:
    """Its times and its offset are claims, and there is no more in it."""


CHECKS = StoreChecks(_own_offset, read_small_files, _check_checkpoint)
