"""The argument that says which layout stores have."""

from __future__ import annotations

import argparse

from commitlake.connectors.formats.engine.layouts import LayoutChoice, StoreLayout

FOLDERS = "commitlog/ or journal/"
"""What a store folder holds, for a help text."""
_HELP = (
    "of a folder that holds both, RocketMQ's commitlog/ or JMQ's journal/ is meant; else found from the folder; "
    "rocketmq, boltmq and jmq, as `commitlake broker` names them, are taken, too"
)
_OF_BROKERS = {"rocketmq": StoreLayout.COMMITLOG, "boltmq": StoreLayout.COMMITLOG, "jmq": StoreLayout.JOURNAL}


def add_layout_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--layout`."""
    choices = tuple(map(str, StoreLayout))
    parser.add_argument("--layout", type=lambda name: str(_OF_BROKERS.get(name, name)), choices=choices, help=_HELP)


def layout_of(arguments: argparse.Namespace) -> LayoutChoice:
    """What it says; a job without it finds the layout from the folder alone."""
    return LayoutChoice(getattr(arguments, "layout", None) or LayoutChoice.ANY)
