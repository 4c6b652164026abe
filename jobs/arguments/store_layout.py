"""The option `--layout`, which selects the format of stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.log_format.format import Formats
from commitlake.jobs.cli.options import Options, Rule, Section, option

FOLDERS = "commitlog/ or journal/"
"""The folders that a store may hold, for help texts."""
_HELP = (
    "format of the store: rocketmq, boltmq or jmq, or the name of the log's folder: commitlog or journal; needed only "
    "for a folder that holds both"
)


def _parse_layout(name: str) -> str:
    """Return the name of the log folder for a format's name or alias; an unknown name is returned unchanged."""
    log_format = all_formats().find_format(name)
    return name if log_format is None else log_format.folder


def layout_option(section: Section | None = None, rules: Sequence[Rule] = ()) -> str | None:
    """Declare the option `--layout`, which names the file format of a store."""
    choices = tuple(log_format.folder for log_format in all_formats())
    return option(_HELP, parse=_parse_layout, choices=choices, metavar="FORMAT", section=section, rules=rules)


@dataclass(frozen=True, kw_only=True)
class LayoutArgument(Options):
    """The option `--layout`, which names the file format of a store."""

    layout: str | None = layout_option()


def find_formats(arguments: Options) -> Formats:
    """Return the format that `--layout` names; without the option, the format is detected from the folder."""
    text = getattr(arguments, "layout", None)
    return all_formats() if text is None else all_formats().select_by_name(text)
