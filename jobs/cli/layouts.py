"""The argument that says which format stores have."""

from __future__ import annotations

import argparse

from commitlake.connectors.formats.registry import ANY_FORMAT, FormatChoice, all_formats, format_called

FOLDERS = "commitlog/ or journal/"
"""What a store folder holds, for a help text."""
_HELP = (
    "of a folder that holds both, RocketMQ's commitlog/ or JMQ's journal/ is meant; else found from the folder; "
    "rocketmq, boltmq and jmq, as `commitlake broker` names them, are taken, too"
)


def add_layout_argument(parser: argparse._ActionsContainer) -> None:
    """Add `--layout`."""
    choices = tuple(log_format.folder for log_format in all_formats())
    parser.add_argument("--layout", type=_folder_of, choices=choices, help=_HELP)


def _folder_of(name: str) -> str:
    """Return the folder of the format with a name; the name itself where there is none."""
    log_format = format_called(name)
    return name if log_format is None else log_format.folder


def layout_of(arguments: argparse.Namespace) -> FormatChoice:
    """Return what it says; a job without it finds the format from the folder alone."""
    text = getattr(arguments, "layout", None)
    return ANY_FORMAT if text is None else FormatChoice.parse(text)
