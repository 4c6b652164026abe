"""A rebuild that takes the place of a store's own files, while nobody else can open the store."""

from __future__ import annotations

import argparse
import datetime
import sys
from dataclasses import replace
from pathlib import Path

from broker_lite.store.errors import StoreLockedError
from broker_lite.store.ownership import StoreLock
from connectors.commitlog.stores import Store
from connectors.rebuild.errors import BusyStoreError, RebuildError
from connectors.rebuild.replace import Replacement
from connectors.rebuild.run import Rebuilt
from connectors.rebuild.settings import Wanted
from jobs.rebuild_run import run_rebuild


def rebuild_in_place(arguments: argparse.Namespace, store: Store, wanted: Wanted) -> Rebuilt | None:
    """Build beside, verify, replace; None where an earlier run had come to replacing, and this one finished it.

    Raises:
        BusyStoreError: if a broker has the store open.
        DisagreementError: if the new files do not agree with the log: nothing is replaced then.
        RebuildError: if the store is not on a disk.
    """
    if "://" in store.root:
        raise RebuildError(f"{store.root}: expected a store on a local or mounted disk")
    root = Path(store.root).resolve().parent
    try:
        lock = StoreLock(root)
    except StoreLockedError as error:
        raise BusyStoreError(str(error)) from None
    try:
        replacement = Replacement(root, store.layout)
        replacement.clear()
        rebuilt = None
        if not replacement.has_started:
            rebuilt = run_rebuild(arguments, store, replacement.out, wanted)
            taken = replacement.take_over_old_queues(rebuilt.settings)
            replacement.verify(store, rebuilt.shifted_queues, wanted.topics, wanted.delay_levels_ms)
            if taken and not arguments.quiet:
                print(f"{taken} queues without a record in the log keep their files", file=sys.stderr)
        stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
        for path in replacement.replace(stamp):
            if not arguments.quiet:
                print(f"kept {path}", file=sys.stderr)
    finally:
        lock.release()
    return None if rebuilt is None else replace(rebuilt, out=root)
