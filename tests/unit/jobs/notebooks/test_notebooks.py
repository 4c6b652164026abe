"""Tests of the notebooks' form and shared code, and of the replay, which needs no Spark.

The others are run in `tests/integration/spark/test_notebooks.py`.
"""

from __future__ import annotations

import ast
import contextlib
import datetime
import io
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pandas as pd
import plotly.express as px
import pyarrow as pa
import pytest

from commitlake.jobs.notebooks import notebook as notebook_module
from commitlake.jobs.notebooks.notebook import open_notebook
from commitlake.pipelines.replay.ledger import add_replay_event, read_replay_states
from commitlake.pipelines.replay.sending.queue_sender import TargetClient
from commitlake.schemas.errors import UsageError
from commitlake.schemas.remoting.topic_and_group_configs import SubscriptionGroupConfig
from commitlake.schemas.report import HeatMap, Section, Series, Table
from commitlake.schemas.tables.replays import ReplayEvent
from commitlake.schemas.times import EPOCH, TimeWindows
from tests.servers.broker_lite import BrokerLite
from tests.support.failing_groups import failing_group
from tests.support.html_pages import assert_self_contained, parse_page
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message
from tests.support.notebook_scripts import NOTEBOOKS, Widgets, printed_table, run_notebook
from tests.support.replays import target_client
from tests.support.topic_reading import make_topic

if TYPE_CHECKING:
    from plotly.graph_objects import Figure
    from pyspark.sql import DataFrame

NAMES = sorted(path.stem for path in NOTEBOOKS.iterdir() if path.is_file())
REPLAY = "replay_a_time_range"
HOSTILE = "$\\frac{1}{0}$ <script>alert(1)</script> \u202e\x1b[31m%s"
SHOWN = HOSTILE.replace("\u202e", "\\u202e").replace("\x1b", "\\x1b")
ORDERS = 24
WINDOWS = TimeWindows(EPOCH, datetime.timedelta(minutes=1), 1)
PICTURE = Section("picture", "Picture", [HeatMap("Dead letters", WINDOWS, [Series(HOSTILE, [3])])])


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """An order every half hour."""
    growing = GrowingLake(tmp_path_factory.mktemp("notebooks"))
    growing.write(
        new_message(number, queue_id=number % 2, born_timestamp=MIDNIGHT_MS + number * 1_800_000)
        for number in range(ORDERS)
    )
    growing.archive()
    return growing


def test_a_dry_run_of_a_replay_counts_the_messages(growing: GrowingLake, tmp_path: Path) -> None:
    printed = run_notebook(REPLAY, growing.lake.root, "--plots", str(tmp_path))
    assert f"{ORDERS} messages of 1 topic (orders)" in printed
    assert "Nothing was sent: this is a dry run." in printed
    assert [row[1:4] for row in printed_table(printed, "Queues")] == [["orders", str(queue), "12"] for queue in (0, 1)]
    assert sum(int(row[1]) for row in printed_table(printed, "Selected messages by topic")) == ORDERS
    assert "Groups: none" in printed
    (picture,) = tmp_path.iterdir()
    assert_self_contained(picture.read_text())


def test_a_replay_is_sent_once_and_its_outcome_is_printed(growing: GrowingLake, tmp_path: Path) -> None:
    with BrokerLite(tmp_path / "target") as target, target_client(target.name_server_address) as client:
        topic = "Again"
        make_topic(client.admin, topic, 2)
        client.admin.create_group(SubscriptionGroupConfig("billing"))
        asked = ("--namesrv", target.name_server_address, "--to_topic", topic, "--from", "2023-11-15T06:00")
        with failing_group("billing", target.name_server_address) as consumer:
            consumer.pass_all(topic)
            printed = run_notebook(REPLAY, growing.lake.root, *asked)
            assert "12 of 12 messages are there." in printed
            assert printed_table(printed, "Groups") == [["billing", "12", "0", "0", "12", "0", "0", "0"]]
            consumer.send_back(*consumer.messages(topic)[0], delay_level=-1)
            consumer.pass_all(topic)
        printed = run_notebook(REPLAY, growing.lake.root, *asked)
        assert "was sent by an earlier run, and is not sent again" in printed
        assert printed_table(printed, "Groups") == [["billing", "12", "11", "1", "0", "0", "0", "1"]]
        assert len(consumer_rows(client, topic)) == 12
        *_, replay_id = read_replay_states(growing.lake)
        assert read_replay_states(growing.lake)[replay_id].is_verified
        add_replay_event(growing.lake, replay_id, ReplayEvent.UNDONE)
        with pytest.raises(UsageError, match=r"undone for some groups: nothing was sent. With again=yes"):
            run_notebook(REPLAY, growing.lake.root, *asked)
        add_replay_event(growing.lake, replay_id, ReplayEvent.WITHDRAWN)  # before anything was sent
        assert "12 of 12 messages are there." in run_notebook(REPLAY, growing.lake.root, *asked)
        assert len(consumer_rows(client, topic)) == 24


def consumer_rows(client: TargetClient, topic: str) -> list[object]:
    """Return the rows of all messages of a topic of the target."""
    puller = client.puller
    return [one for queue in puller.queues(topic) for one in puller.read(queue, 0, puller.max_offset(queue))]


def test_databricks_has_widgets_and_shows_tables_in_cells(
    growing: GrowingLake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["ipykernel", "-f", "connection.json"])
    monkeypatch.chdir(tmp_path)
    shown: list[Any] = []
    dbutils = type("Dbutils", (), {"widgets": Widgets({"lake": growing.lake.root})})
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(NOTEBOOKS / f"{REPLAY}.py"), {"dbutils": dbutils, "display": shown.append}, "__main__")
    assert shown
    assert all(isinstance(frame, pd.DataFrame) and len(frame) for frame in shown)
    assert printed.getvalue().strip()
    assert list(tmp_path.iterdir()) == []


class Frame:
    """A DataFrame as far as notebooks use it."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows
        self.columns = rows.column_names

    def limit(self, count: int) -> Frame:
        """Return the first rows."""
        return Frame(self.rows.slice(0, count))

    def toArrow(self) -> pa.Table:  # noqa: N802 (Spark's name)
        """Return the rows."""
        return self.rows


def frame(**columns: list[Any]) -> DataFrame:
    return cast("DataFrame", Frame(pa.table(columns)))


def test_a_script_prints_the_first_rows_of_a_frame(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(notebook_module, "MAX_ROWS", 2)
    notebook = notebook_module.Notebook({"plots": ""}, {})
    notebook.display("Groups", frame(group=[HOSTILE, None, "c"], messages=[1, 2, 3]))
    notebook.display("Two", frame(group=["a", "b"]))
    notebook.display("Nobody", frame(group=[]))
    printed = capsys.readouterr().out
    assert printed_table(printed, "Groups (the first 2)") == [[SHOWN, "1"], ["2"]]
    assert "\nTwo\n" in printed
    assert printed.endswith("\nNobody: none\n")


def test_databricks_displays_frames_itself() -> None:
    shown: list[Any] = []
    given = frame(group=["a"])
    notebook_module.Notebook({"plots": ""}, {"dbutils": object(), "display": shown.append}).display("Groups", given)
    assert shown == [given]


def test_jupyter_shows_frames_as_text() -> None:
    shown: list[pd.DataFrame] = []
    names = {"get_ipython": object(), "display": shown.append}
    notebook_module.Notebook({"plots": ""}, names).display("Groups", frame(group=[HOSTILE, None], messages=[1, 2]))
    assert shown[0].to_dict("list") == {"group": [SHOWN, ""], "messages": ["1", "2"]}


def figure() -> Figure:
    points = pd.DataFrame({"hour": pd.to_datetime(["2026-01-07T14:00"] * 2), "count": [3, 4], "group": ["a", HOSTILE]})
    return px.line(points, x="hour", y="count", color="group", title="Dead letters, by hour")


def test_a_script_prints_the_numbers_of_a_figure_and_writes_its_page(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for folder in ("", str(tmp_path)):
        notebook_module.Notebook({"plots": folder}, {}).plot(figure())
        rows = printed_table(capsys.readouterr().out, "Dead letters, by hour")
        assert rows == [["2026-01-07T14:00:00", "a", "3"], ["2026-01-07T14:00:00", SHOWN, "4"]]
    (page,) = tmp_path.iterdir()
    assert page.name == "dead-letters-by-hour.html"
    assert "<script>alert" not in page.read_text()


def test_figures_are_shown_in_cells() -> None:
    shown: list[str] = []
    notebook_module.Notebook({"plots": ""}, {"displayHTML": shown.append, "get_ipython": object()}).plot(figure())
    assert "Plotly.newPlot" in shown[0]
    assert "src=" not in shown[0].partition("<body>")[2].partition("Plotly.newPlot")[0][:1000]


def test_a_flow_has_a_link_for_each_pair_of_topics(capsys: pytest.CaptureFixture[str]) -> None:
    hops = pd.DataFrame({"source": ["orders", "payments"], "target": ["payments", "orders"], "hops": [3, 1]})
    drawn = notebook_module.flow_figure(hops, "Flow")
    (flow,) = drawn.data
    assert flow.node.label == ("orders", "payments")
    assert [flow.link.source, flow.link.target, flow.link.value] == [(0, 1), (1, 0), (3, 1)]
    notebook_module.Notebook({"plots": ""}, {}).plot(drawn)
    assert capsys.readouterr().out == ""


def test_a_given_session_opens_the_place_as_it_is_named() -> None:
    session = object()
    given = notebook_module.Notebook({"lake": "main.logs"}, {"spark": session})
    assert (given.lake_location, given.spark) == ("main.logs", session)


def test_pictures_are_shown_in_cells_in_ipython(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    module = type("Display", (), {"HTML": staticmethod(str), "display": staticmethod(shown.append)})
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    open_notebook("x", {"get_ipython": object(), "display": list}, notebook_module.LAKE).show_sections(PICTURE)
    (frame,) = parse_page(shown[0]).all("iframe")
    assert frame.attributes["sandbox"] == "allow-scripts"
    assert_self_contained(frame.attributes["srcdoc"])


def test_pictures_are_shown_in_cells_on_databricks() -> None:
    shown: list[str] = []
    notebook_module.Notebook({"plots": ""}, {"displayHTML": shown.append, "get_ipython": object()}).show_sections(
        PICTURE
    )
    assert_self_contained(shown[0])


def test_no_name_in_a_table_becomes_a_formula_in_jupyter(capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[str] = []
    names = {"get_ipython": object(), "display": lambda frame: shown.append(frame.to_html())}
    notebook_module.Notebook({"plots": ""}, names).show_sections(
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
        ({"plots": "none/there"}, lambda found: found.show_sections(PICTURE), "plots: expected an existing folder"),
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


def test_every_notebook_is_run_by_a_test() -> None:
    tested = (NOTEBOOKS.parent / "tests" / "integration" / "spark" / "test_notebooks.py").read_text()
    assert [name for name in NAMES if f'"{name}"' not in tested] == [REPLAY]
