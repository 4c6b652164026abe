"""Every command and every piece of code in README and docs works.

The commands of a page run in order, on the page's own copy of the demo's store and lake, which replace the
documentation's `/data/rocketmq/store` and `/data/lake`. `--spark` is left out; other tests compare
Spark with what runs without it.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import json
import shutil
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from duckdb_extensions import import_extension

from commitlake.broker_lite.shop_traffic import fill_shop_store
from commitlake.jobs.arguments.times import join_options_and_times
from commitlake.jobs.cli import main as cli
from docs.generate.table_queries import QUERIES
from tests.support.snippets import Block, blocks_in, blocks_of, matches, pages

_TIMES = ("--from", "--to", "--at", "--consume-from", "--offsets-at")
_TEXT_LANGUAGES = ("", "text", "mermaid")
_OTHER_LANGUAGES = ("sql", "yaml")
"""Languages of the page on dashboards, which `test_dashboards.py` runs and parses."""
_ORDERS = 40
_COLUMNS = 110
"""Width of the tables in the documentation."""
_SHOWN_PLACES = {"/data/rocketmq/store": "broker-a/store", "/data/new-lake": "new-lake", "/data/lake": "lake"}
_PLACES = {
    **_SHOWN_PLACES,
    "/mnt/brokers/{broker}/store": "{broker}/store",
    "/backup/lake": "lake",
    "commitlake-demo/lake": "lake",
}
BLOCKS = [block for page in pages() for block in blocks_of(page)]
RUN_PAGES = sorted({block.page for block in BLOCKS if block.language == "console" and block.mode == "run"})


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the demo's store and lake, which nobody changes."""
    folder = tmp_path_factory.mktemp("demo")
    store = folder / "broker-a" / "store"
    fill_shop_store(store, orders=_ORDERS)
    assert run(folder, ["archive", "--store", str(store), "--lake", str(folder / "lake"), "--local"]) == 0
    return folder


def run(folder: Path, words: Sequence[str]) -> int:
    """Run a command in a folder, in this process, which has loaded its modules, and return its exit code."""
    print(f"$ commitlake {' '.join(words)}", flush=True)
    with contextlib.chdir(folder):
        try:
            code = cli.main(words)
        except SystemExit as ended:
            code = int(ended.code or 0)
    print(f"exit code {code}", flush=True)
    return code


def here(folder: Path, words: Sequence[str]) -> list[str]:
    """Return the words of a command, with the demo's store and lake in place of the documentation's."""
    return [str(folder / _PLACES[word]) if word in _PLACES else word for word in words if word != "--spark"]


@pytest.mark.usefixtures("usual_priority")
@pytest.mark.parametrize("page", RUN_PAGES)
def test_commands_of_a_page_run(
    page: str, demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(_COLUMNS))
    shutil.copytree(demo, tmp_path, dirs_exist_ok=True)
    failed = []
    for block in BLOCKS:
        if block.page == page and block.language == "console" and block.mode == "run":
            for words, shown in zip(block.commands, block.outputs, strict=True):
                capsys.readouterr()
                code = run(tmp_path, here(tmp_path, words))
                printed, more = (each.splitlines()[1:-1] for each in _as_documented(capsys.readouterr(), tmp_path))
                place = f"{page}:{block.line}: commitlake {' '.join(words)}"
                if code != block.exit_code:
                    failed.append("\n".join([f"{place}: exit code {code}", *printed, *more]))
                elif not matches(shown, printed, more):
                    failed.append("\n".join([f"{place}: expected as output", *shown, "found", *printed, *more]))
    assert failed == [], "\n\n".join(failed)


def _as_documented(printed: tuple[str, str], folder: Path) -> tuple[str, str]:
    """Return output with the documentation's places in place of the demo's."""
    out, err = printed
    for place, name in _SHOWN_PLACES.items():
        out, err = (text.replace(str(folder / name), place) for text in (out, err))
    return out, f"\n{err}\n"


def _parsed() -> Iterator[tuple[str, list[str]]]:
    for block in BLOCKS:
        if block.language == "console" and block.mode in {"run", "parse"}:
            for words in block.commands:
                yield f"{block.page}:{block.line}", words


def test_all_commands_are_parsed() -> None:
    failed = []
    for place, words in _parsed():
        job, *arguments = words
        if job in {"--version", "--help"}:
            continue
        parser = importlib.import_module(f"commitlake.jobs.{job}.command").build_parser()
        try:
            parser.parse_args(join_options_and_times(arguments, *_TIMES))
        except SystemExit as ended:
            if ended.code:
                failed.append(f"{place}: commitlake {' '.join(words)}")
    assert failed == []


def test_each_block_is_run_or_has_a_reason_why_not() -> None:
    for block in BLOCKS:
        place = f"{block.page}:{block.line}"
        assert block.language in {"console", "python", "toml", "json", *_TEXT_LANGUAGES, *_OTHER_LANGUAGES}, place
        if block.mode in {"parse", "skip", "compile"} or block.exit_code:
            assert block.why, place
        if block.language == "console" and block.mode != "skip":
            assert block.commands, f"{place}: expected a line that begins with $"
            assert block.other_commands == [], f"{place}: expected commands of commitlake only"


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "python"], ids=str)
def test_python_code_compiles_and_its_imports_exist(block: Block) -> None:
    tree = ast.parse(block.text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            module = importlib.import_module(node.module)
            for alias in node.names:
                assert hasattr(module, alias.name), f"{block.page}:{block.line}: {node.module}.{alias.name}"


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "python" and block.mode == "run"])
def test_python_code_runs(block: Block, demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # else Polars warns that another package is faster
    for name in [name for name in ("avro", "delta", "iceberg") if "duckdb" in block.text]:
        import_extension(name)  # from packages, so that INSTALL needs no network
    if "_iceberg" in block.text:
        assert run(demo, ["publish", "--iceberg", "--lake", str(demo / "lake"), "--table", "messages", "--quiet"]) == 0
    exec(compile(block.text.replace("/data/lake", str(demo / "lake")), block.page, "exec"), {})


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "json"], ids=str)
def test_json_blocks_are_valid_json(block: Block) -> None:
    json.loads(block.text)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "toml"], ids=str)
def test_settings_are_accepted_by_the_jobs(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "commitlake.toml"
    file.write_text(block.text)
    for job, settings in tomllib.loads(block.text).items():
        parser = importlib.import_module(f"commitlake.jobs.{job}.command").build_parser()
        known = {name.removeprefix("--") for action in parser._actions for name in action.option_strings}
        assert settings.keys() <= known
        parser.parse_args(["--config", str(file)])


def test_queries_of_the_table_reference_run(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from commitlake.connectors.lake.lake import Lake, NoTableError

    failed = []
    for table, queries in QUERIES.items():
        try:
            Lake(str(demo / "lake")).table(table)
        except NoTableError:
            continue  # it appears with its first row
        for _, sql in queries:
            if cli.main(["query", "--lake", str(demo / "lake"), "--quiet", "--sql", sql]) != 0:
                failed.append(f"{sql}: {capsys.readouterr().err}")
    assert failed == []


def test_queries_name_columns_of_their_tables() -> None:
    from docs.generate.lake_tables import schema_of

    for table, queries in QUERIES.items():
        names = set(schema_of(table).names)
        for purpose, sql in queries:
            assert f"FROM {table}" in sql, purpose
            selected = sql.removeprefix("SELECT ").partition(" FROM ")[0].split(", ")
            plain = {name for name in selected if name.isidentifier()}
            assert plain <= names, f"{table}: {plain - names}"


# --- the parser of blocks ---


def test_output_below_a_command_is_compared() -> None:
    text = "```console\n$ commitlake query \\\n    --lake x\na  1\n…\n(… s)\n$ commitlake lag\n```\n"
    (block,) = blocks_in(text, "page.md")
    assert block.outputs == [["a  1", "…", "(… s)"], []]
    shown = block.outputs[0]
    assert matches(shown, ["a  1", "b  2"], ["(0.3 s)", "a note"])
    assert not matches(shown, ["a  2", "b  2"], ["(0.3 s)"])
    assert not matches(["a  1"], ["a  1", "b  2"])  # what is left out of standard output is marked
    assert matches([], ["anything"])


def test_a_comment_sets_how_the_next_block_is_tested() -> None:
    text = "a\n\n<!-- test: run, exits with 3; the group is\n behind -->\n```console\n$ commitlake lag\n```\n"
    (block,) = blocks_in(text, "page.md")
    assert (block.mode, block.exit_code, block.why, block.line) == ("run", 3, "the group is behind", 5)


def test_blocks_in_lists_and_continued_lines_are_found() -> None:
    text = "1. One:\n\n    ```console\n    $ commitlake query \\\n        --lake x | head\n    output\n    ```\n"
    (block,) = blocks_in(text, "page.md")
    assert block.commands == [["query", "--lake", "x"]]


@pytest.mark.parametrize("text", ["<!-- test: perhaps -->\n```console\n```\n", "<!-- test: skip; x -->\n\ntext\n"])
def test_a_comment_that_has_no_effect_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"page\.md"):
        list(blocks_in(text + "\n\nmore\n", "page.md"))
