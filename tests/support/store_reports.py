"""Reports of verify on a store."""

from __future__ import annotations

from pathlib import Path

from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.verify.store_precheck import VerifyOptions
from commitlake.pipelines.verify.store_verification import StoreReport, verify_stores


def report_of(root: Path | str, runner: Runner = HERE, /, **options: int) -> StoreReport:
    """Return the report on the only store in a folder or at a URI; it is named `a`."""
    (store,) = find_stores(str(root), "a", formats=all_formats())
    (report,) = verify_stores([store], VerifyOptions(**options), runner=runner)  # type: ignore[arg-type]
    return report
