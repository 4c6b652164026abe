"""Tests of the notebooks as scripts, in Jupyter and on Databricks: their text matches their tables and the log."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import runpy
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from commitlake.jobs.notebooks import notebook as notebook_module
from commitlake.jobs.notebooks.notebook import open_notebook
from commitlake.jobs.snapshot.command import main as snapshot
from commitlake.pipelines.replay.ledger import add_replay_event, read_replay_states
from commitlake.pipelines.replay.sending import TargetClient
from commitlake.schemas.errors import UsageError
from commitlake.schemas.remoting.configs import SubscriptionGroupConfig
from commitlake.schemas.report import Bar, BarChart, Section, Table
from commitlake.schemas.tables.replays import ReplayEvent
from tests.servers.broker_lite import BrokerLite
from tests.support.failing_groups import failing_group
from tests.support.html_pages import assert_self_contained, parse_page
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message
from tests.support.notebook_scripts import NOTEBOOKS, run_notebook
from tests.support.replays import target_client
from tests.support.topic_reading import make_topic

NAMES = (
    "an_orders_life", "archive_health", "dead_letters", "how_keys_flow", "lag_analysis", "replay_a_time_range",
    "tps_and_capacity",
)  # fmt: skip
ASKED = {"an_orders_life": ("--key", "order-1")}
HOSTILE = "$\\frac{1}{0}$ <script>alert(1)</script> \u202e\x1b[31m%s"
SHOWN = HOSTILE.replace("\u202e", "\\u202e").replace("\x1b", "\\x1b")
HOUR_MS = 3_600_000
SNAPSHOTS = ((6, 5), (7, 7), (8, 8), (9, 8))
"""Hours after midnight, and the offset that the group `billing` had then in each of two queues."""
ORDERS = 24
PICTURE = Section("picture", "Picture", [BarChart("Dead letters", [Bar(HOSTILE, 3)])])


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """An order every half hour; `billing` stops at eight in each queue; three dead letters."""
    growing = GrowingLake(tmp_path_factory.mktemp("notebooks"))
    orders = [
        new_message(number, topic="orders", queue_id=number % 2, born_timestamp=MIDNIGHT_MS + number * HOUR_MS // 2)
        for number in range(ORDERS)
    ]
    dead = [
        new_message(
            ORDERS + number,
            topic=f"%DLQ%{HOSTILE}" if number else "%DLQ%billing",
            queue_id=0,
            reconsume_times=3,
            born_timestamp=MIDNIGHT_MS + number * HOUR_MS,
            properties=(("RETRY_TOPIC", HOSTILE), ("TAGS", HOSTILE), ("EXCEPTION", HOSTILE)),
        )
        for number in range(3)
    ]
    growing.write([*orders, *dead])
    growing.archive()
    path = growing.store / "config" / "consumerOffset.json"
    path.parent.mkdir()
    for hours, offset in SNAPSHOTS:
        table = {
            "orders@billing": {0: offset, 1: offset},
            f"orders@{HOSTILE}": {0: hours, 1: hours},
        }
        path.write_text(json.dumps({"offsetTable": table}))
        seconds = MIDNIGHT_MS // 1000 + hours * 3600
        os.utime(path, (seconds, seconds))
        assert snapshot(["--lake", growing.lake.root, "--store", str(growing.store), "--quiet"]) == 0
    return growing


@dataclass(frozen=True)
class Output:
    """Output of a notebook, and the folder of its pictures."""

    text: str
    plots: Path


@pytest.fixture(scope="module")
def outputs(growing: GrowingLake, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Output]:
    """Each notebook, run once as a script."""
    found = {}
    for name in NAMES:
        plots = tmp_path_factory.mktemp(name)
        found[name] = Output(run_notebook(name, growing.lake.root, "--plots", str(plots), *ASKED.get(name, ())), plots)
    return found


def table(printed: str, title: str) -> list[list[str]]:
    """Return the rows of a table, split at two or more spaces."""
    lines = printed[printed.index(f"\n{title}") + 1 :].splitlines()[3:]
    rows = []
    for line in lines:
        if not line.strip():
            break
        rows.append(re.split(r"\s{2,}", line.strip()))
    return rows


def test_the_text_about_lag_matches_its_tables(outputs: Mapping[str, Output]) -> None:
    printed = outputs["lag_analysis"].text
    # Until nine, ten orders are stored in one queue and nine in the other; eight of each are consumed. No filter of the
    # group is known, so it may want fewer.
    assert "billing has stalled on orders: up to 3 messages behind, the next one has waited for up to 1 h" in printed
    assert "not moving since 08:00 UTC." in printed
    assert "groups: 2; messages behind: up to 4; " in printed
    assert "At its present rate it does not catch up." in printed
    groups = {row[0]: row for row in table(printed, "Groups")}
    assert groups["billing"][1:3] == ["stalled", "up to 3"]
    assert {row[1] for row in groups.values()} == {"stalled", "ok"}
    # Each row begins with a date and a time; billing was most behind.
    assert [row[1] for row in table(printed, "Messages behind")] == ["3", "1", "1", "3"]


def test_a_past_time_and_groups_can_be_selected(growing: GrowingLake) -> None:
    printed = run_notebook("lag_analysis", growing.lake.root, "--at", "2023-11-15T07:00", "--group", "billing,bilings")
    assert "The group keeps up; billing is furthest behind: up to 1 messages behind" in printed
    assert "--group: no offset of the group 'bilings' is known. Did you mean 'billing'?" in printed
    assert [row[1] for row in table(printed, "Messages behind")] == ["3", "1"]


def test_the_text_about_rates_matches_its_tables(outputs: Mapping[str, Output]) -> None:
    printed = outputs["tps_and_capacity"].text
    assert f"Producers sent {ORDERS} messages in" in printed
    assert "orders has 89 % of them." in printed
    assert "Dead letters: 3 dead letters, " in printed
    assert "Less than a whole day is archived; at this rate, a day has" in printed
    assert "A disk of 100.0 GiB holds the log of more than ten years" in printed
    assert table(printed, "By topic")[0][:2] == ["orders", str(ORDERS)]


def test_the_text_about_dead_letters_matches_its_tables(outputs: Mapping[str, Output]) -> None:
    printed = outputs["dead_letters"].text
    assert f"3 dead letters of 2 groups; the worst is {SHOWN}, with 2 (67 %)." in printed
    assert f"gave up messages of {SHOWN} with the tag {SHOWN} after 3 attempts: {SHOWN}; 2 messages" in printed
    assert len(table(printed, "Causes")) == 2
    assert {cell for row in table(printed, "Dead letters by group") for cell in row[1:]} == {"0", "1"}


def test_the_text_about_a_dry_run_matches_its_tables(outputs: Mapping[str, Output]) -> None:
    printed = outputs["replay_a_time_range"].text
    assert f"{ORDERS} messages of 1 topic (orders)" in printed
    assert "Nothing was sent: this is a dry run." in printed
    assert [row[1:4] for row in table(printed, "Queues")] == [["orders", str(queue), "12"] for queue in (0, 1)]
    assert sum(int(row[1]) for row in table(printed, "Selected messages by topic")) == ORDERS
    assert "Groups: none" in printed


def test_a_replay_is_sent_once_and_its_outcome_is_printed(growing: GrowingLake, tmp_path: Path) -> None:
    with BrokerLite(tmp_path / "target") as target, target_client(target.name_server_address) as client:
        topic = "Again"
        make_topic(client.admin, topic, 2)
        client.admin.create_group(SubscriptionGroupConfig("billing"))
        asked = ("--namesrv", target.name_server_address, "--to_topic", topic, "--from", "2023-11-15T06:00")
        with failing_group("billing", target.name_server_address) as consumer:
            consumer.pass_all(topic)
            printed = run_notebook("replay_a_time_range", growing.lake.root, *asked)
            assert "12 of 12 messages are there." in printed
            assert table(printed, "Groups") == [["billing", "12", "0", "0", "12", "0", "0", "0"]]
            consumer.send_back(*consumer.messages(topic)[0], delay_level=-1)
            consumer.pass_all(topic)
        printed = run_notebook("replay_a_time_range", growing.lake.root, *asked)
        assert "was sent by an earlier run, and is not sent again" in printed
        assert table(printed, "Groups") == [["billing", "12", "11", "1", "0", "0", "0", "1"]]
        assert len(consumer_rows(client, topic)) == 12
        *_, replay_id = read_replay_states(growing.lake)
        add_replay_event(growing.lake, replay_id, ReplayEvent.UNDONE)
        with pytest.raises(UsageError, match="undone for some groups: again=yes sends"):
            run_notebook("replay_a_time_range", growing.lake.root, *asked)
        add_replay_event(growing.lake, replay_id, ReplayEvent.WITHDRAWN)  # before anything was sent
        assert "12 of 12 messages are there." in run_notebook("replay_a_time_range", growing.lake.root, *asked)
        assert len(consumer_rows(client, topic)) == 24


def consumer_rows(client: TargetClient, topic: str) -> list[object]:
    """Return the rows of all messages of a topic of the target."""
    puller = client.puller
    return [one for queue in puller.queues(topic) for one in puller.read(queue, 0, puller.max_offset(queue))]


def test_the_text_about_health_matches_its_tables(outputs: Mapping[str, Output]) -> None:
    printed = outputs["archive_health"].text
    assert "The archive is on time: the last run that found new messages ended" in printed
    assert "Nothing is missing in the logs of 1 store." in printed
    assert table(printed, "Stores")[0][0] == "broker-a"
    assert str(ORDERS + 3) in table(printed, "The last runs")[0]


def test_the_text_about_an_orders_life_matches_its_tables(outputs: Mapping[str, Output]) -> None:
    printed = outputs["an_orders_life"].text
    assert "key order-1: 2 " in printed
    assert "sent to orders" in table(printed, "Steps")[0]
    assert "passed by billing before 06:00:00 (offset 0, group at 8): consumed, or skipped" in printed
    assert "the lake has no table edges" in printed


def test_the_text_about_how_keys_flow_matches_its_tables(outputs: Mapping[str, Output]) -> None:
    printed = outputs["how_keys_flow"].text
    assert "No key passes from one topic to another in this time." in printed
    assert table(printed, "Topics with keys") == [["orders", str(ORDERS), str(ORDERS)]]


@pytest.mark.parametrize("name", NAMES)
def test_no_name_reaches_a_terminal_unescaped(name: str, outputs: Mapping[str, Output]) -> None:
    assert not set("\x1b\u202e") & set(outputs[name].text)


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_written_to_the_requested_folder(name: str, outputs: Mapping[str, Output]) -> None:
    written = list(outputs[name].plots.iterdir())
    assert written or name == "how_keys_flow"  # no key passes from topic to topic
    for path in written:
        assert path.suffix == ".html"
        assert_self_contained(path.read_text())


class Widgets:
    """Widgets of Databricks, which keep a value that a user has set."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values, self.made = dict(values), set[str]()

    def text(self, name: str, default: str, label: str) -> None:
        """Make a widget."""
        assert label.startswith(name)
        self.made.add(name)
        self.values.setdefault(name, default)

    def get(self, name: str) -> str:
        """Return its value."""
        assert name in self.made
        return self.values[name]


@pytest.mark.parametrize("name", NAMES)
def test_databricks_has_widgets_and_shows_tables_in_cells(
    name: str, growing: GrowingLake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["ipykernel", "-f", "connection.json"])
    monkeypatch.chdir(tmp_path)
    shown: list[Any] = []
    widgets = Widgets({"lake": growing.lake.root, "key": "order-1"})
    dbutils = type("Dbutils", (), {"widgets": widgets})
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(
            str(NOTEBOOKS / f"{name}.py"), {"dbutils": dbutils, "display": shown.append, "spark": None}, "__main__"
        )
    assert shown
    assert all(isinstance(frame, pd.DataFrame) and len(frame) for frame in shown)
    assert printed.getvalue().strip()
    assert list(tmp_path.iterdir()) == []


def test_pictures_are_shown_in_cells_in_ipython(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    module = type("Display", (), {"HTML": staticmethod(str), "display": staticmethod(shown.append)})
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    open_notebook("x", {"get_ipython": object(), "display": list}, notebook_module.LAKE).show(PICTURE)
    (frame,) = parse_page(shown[0]).all("iframe")
    assert frame.attributes["sandbox"] == "allow-scripts"
    assert_self_contained(frame.attributes["srcdoc"])


def test_pictures_are_shown_in_cells_on_databricks() -> None:
    shown: list[str] = []
    notebook_module.Notebook({"plots": ""}, {"displayHTML": shown.append, "get_ipython": object()}).show(PICTURE)
    assert_self_contained(shown[0])


def test_no_name_in_a_table_becomes_a_formula_in_jupyter(capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[str] = []
    names = {"get_ipython": object(), "display": lambda frame: shown.append(frame.to_html())}
    notebook_module.Notebook({"plots": ""}, names).show(
        Section("x", "x", [Table.of_values("Names", [{"name": HOSTILE}])])
    )
    assert capsys.readouterr().out == "\nNames\n"
    assert "tex2jax_ignore" in shown[0]
    assert "<script>" not in shown[0]


def test_arguments_override_the_environment_which_overrides_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(sys, "argv", ["x"])
    script = {"__name__": "__main__"}
    assert open_notebook("x", script, notebook_module.LAKE).values["lake"] == "commitlake-demo/lake"
    monkeypatch.setenv("COMMITLAKE_LAKE", "/data/lake")
    assert open_notebook("x", script, notebook_module.LAKE).values["lake"] == "/data/lake"
    monkeypatch.setattr(sys, "argv", ["x", "--lake", "/other", "--from", "-2h"])
    given = open_notebook("x", script, notebook_module.LAKE, notebook_module.FROM)
    assert (given.values["lake"], given.values["from"]) == ("/other", "-2h")
    assert open_notebook("x", {**script, "get_ipython": 1}, notebook_module.LAKE).values["lake"] == "/data/lake"


def test_the_folder_for_pictures_is_created_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    folder = tmp_path / "new" / "pictures"
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", ["x", "--plots", str(folder)])
        open_notebook("x", {"__name__": "__main__"}, notebook_module.LAKE)
        assert folder.is_dir()
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(sys, "argv", ["x", "--plots", str(tmp_path / "file")])
    with pytest.raises(UsageError, match="cannot be created"):
        open_notebook("x", {"__name__": "__main__"}, notebook_module.LAKE)


@pytest.mark.parametrize(
    ("values", "ask", "expected"),
    [
        ({"lake": ""}, lambda found: found.lake, "lake: expected the folder of a lake"),
        ({"at": "soon"}, lambda found: found.time_parameter("at"), "at: 'soon' is not a time"),
        ({"late": "1"}, lambda found: found.duration_parameter("late"), "late: '1' is not a duration"),
        ({"disk": "-3"}, lambda found: found.number_parameter("disk"), "disk: '-3' is not a positive number"),
        ({"disk": "nan"}, lambda found: found.number_parameter("disk"), "disk: 'nan' is not a positive number"),
        ({"plots": "none/there"}, lambda found: found.show(PICTURE), "plots: expected an existing folder"),
    ],
)
def test_invalid_values_are_refused(values: dict[str, str], ask: Callable[[Any], object], expected: str) -> None:
    with pytest.raises(UsageError, match=re.escape(expected)):
        ask(notebook_module.Notebook({"plots": "", **values}, {}))


def test_an_error_of_a_script_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(sys, "argv", ["lag_analysis.py"])
    open_notebook("x", {"__name__": "__main__"})
    error = UsageError("at: 'soon' is not a time")
    sys.excepthook(UsageError, error, None)
    assert capsys.readouterr().err == "lag_analysis: error: at: 'soon' is not a time\n"


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_in_databricks_form_and_has_no_logic(name: str) -> None:
    text = (NOTEBOOKS / f"{name}.py").read_text()
    cells = text.split("# COMMAND ----------\n")
    assert text.startswith("# Databricks notebook source\n# MAGIC %md\n# MAGIC # ")
    for cell in cells[1:]:
        lines = [line for line in cell.splitlines() if line]
        marked = [line.startswith("# MAGIC") for line in lines]
        assert all(marked) or not any(marked)
    logic = (ast.FunctionDef, ast.ClassDef, ast.For, ast.While, ast.If, ast.Try, ast.With)
    assert [node for node in ast.walk(ast.parse(text)) if isinstance(node, logic)] == []
    assert f"python notebooks/{name}.py" in text


def test_every_notebook_is_tested() -> None:
    assert sorted(path.stem for path in NOTEBOOKS.iterdir() if path.is_file()) == list(NAMES)
