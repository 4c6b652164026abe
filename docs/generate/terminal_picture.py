"""Draw the picture of a terminal at the top of the README, from the output of real commands.

    python -m docs.generate.terminal_picture

It fills a small shop's store and archives it in a temporary folder, runs `COMMANDS`, and writes
`docs/images/terminal.svg`. The shop is the same each time, so a test can compare the picture with the commands.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from commitlake.broker_lite.shop_traffic import fill_shop_store
from commitlake.jobs.cli import main as cli

PICTURE = Path(__file__).parents[1] / "images" / "terminal.svg"
ORDERS = 40
COMMANDS = (
    "query --lake lake --key order-4711 --columns store_timestamp,topic,kind,tags,reconsume_times",
    "query --lake lake --sql 'SELECT kind, count(*) AS messages FROM messages GROUP BY kind ORDER BY 2 DESC'",
)
_WIDTH = 116
# rich's template names a font on another host; the picture has to work without a network.
_TEMPLATE = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace(
    "Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono"
)


def main() -> None:
    """Draw the picture."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = folder / "broker-a" / "store"
        fill_shop_store(store, orders=ORDERS)
        cli.main(
            ["archive", "--store", str(store), "--lake", str(folder / "lake"), "--local", "--no-quality", "--quiet"]
        )
        PICTURE.write_text(picture(list(screen(folder))), encoding="utf-8")


def screen(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each command, and the lines that it prints on standard output.

    Args:
        folder: holds `lake`, made of a shop with `ORDERS` orders.
    """
    for command in COMMANDS:
        printed = io.StringIO()
        with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
            cli.main([*shlex.split(command), "--quiet"])
        lines = [line[:_WIDTH].rstrip() for line in printed.getvalue().splitlines()]
        yield f"$ commitlake {command}", lines


def picture(shown: Sequence[tuple[str, list[str]]]) -> str:
    """Return the picture of a terminal with commands and what they print."""
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for command, lines in shown:
        console.print(Text(command, style="bold green"))
        for line in lines:
            console.print(Text(line))
        console.print()
    return console.export_svg(title="commitlake", code_format=_TEMPLATE, unique_id="terminal")


if __name__ == "__main__":
    main()
