"""The argument that says which layout stores have, and the refusal of a dialect that a job does not know."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from connectors.commitlog.layouts import LayoutChoice, StoreLayout
from jobs.command import JobError

if TYPE_CHECKING:
    from connectors.commitlog.stores import Store

FOLDERS = "commitlog/ or journal/"
"""What a store folder holds, for a help text."""
_HELP = "of a folder that holds both, RocketMQ's commitlog/ or JMQ's journal/ is meant; else found from the folder"


def add_layout_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--layout`."""
    parser.add_argument("--layout", choices=tuple(map(str, StoreLayout)), help=_HELP)


def layout_of(arguments: argparse.Namespace) -> LayoutChoice:
    """What it says; a job without it finds the layout from the folder alone."""
    return LayoutChoice(getattr(arguments, "layout", None) or LayoutChoice.ANY)


def refuse_other_dialects(job: str, stores: Sequence[Store]) -> None:
    """Refuse stores of which a job would take everything for damaged that is otherwise than in RocketMQ's.

    Raises:
        JobError: for the first store in another dialect of the CommitLog.
    """
    from connectors.commitlog.dialects import dialects_of
    from schemas.layouts.dialect import ROCKETMQ

    for store in stores:
        found = dialects_of(store)
        if found and ROCKETMQ not in found:
            name = min(dialect.name for dialect in found)
            raise JobError(
                f"{store.root} is a log of {name}'s: expected one of RocketMQ's, whose queues and index {job} knows",
                "archive, dump, query, guard, audit and explain work on it",
            )
