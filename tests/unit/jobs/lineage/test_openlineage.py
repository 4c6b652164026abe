"""Tests of OpenLineage events: their schema, their ids, and requests to a real HTTP server."""

from __future__ import annotations

import datetime
import json
import re
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest
from openlineage.client.serde import Serde

from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.output_files import OutputFileError
from commitlake.jobs.lineage.openlineage import check_event_target, graph_events, story_events, write_events
from commitlake.pipelines.lineage.message_history import Edge, MissingRecord, Story
from commitlake.pipelines.lineage.topic_graph import TopicGraph, TopicLink
from commitlake.schemas.errors import ExitCode
from tests.support.stories import hostile_story, order_story, record_step

SECOND = datetime.timedelta(seconds=1)
GRAPH = TopicGraph(
    datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC), datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC), [],
    [TopicLink("orders", "payments", 3, 2, SECOND, SECOND)],
)  # fmt: skip


class Server(BaseHTTPRequestHandler):
    """Server that accepts events as Marquez does, and refuses those with an unknown path."""

    got: ClassVar[list[tuple[str, str | None, Any]]] = []

    def do_POST(self) -> None:  # noqa: D102 (http.server calls it so)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append((self.path, self.headers["Authorization"], json.loads(body)))
        self.send_response(201 if "lineage" in self.path else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    Server.got.clear()
    with HTTPServer(("127.0.0.1", 0), Server) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()
        thread.join()


def check_event(event: dict[str, Any]) -> None:
    """Check the names, types and formats that OpenLineage's schema requires of a run event."""
    assert set(event) <= {"eventTime", "eventType", "inputs", "outputs", "job", "run", "producer", "schemaURL"}
    assert event["eventType"] in {"START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", event["eventTime"])
    assert re.fullmatch(r"[a-z][a-z0-9+.-]*:.+", event["producer"])
    assert event["schemaURL"].endswith("OpenLineage.json#/$defs/RunEvent")
    uuid.UUID(event["run"]["runId"])
    for part in (event["job"], *event["inputs"], *event["outputs"]):
        assert isinstance(part["namespace"], str)
        assert part["name"]
    for facet in event["job"]["facets"].values():
        assert {"_producer", "_schemaURL"} <= set(facet)


@pytest.mark.parametrize("story", [order_story(), hostile_story()])
def test_events_match_the_schema(story: Any) -> None:
    events = [json.loads(Serde.to_json(event)) for event in story_events(story)]
    assert events
    for event in events:
        check_event(event)


def test_each_step_is_a_run_with_start_complete_and_a_stable_id() -> None:
    first, second = (list(map(Serde.to_dict, story_events(order_story()))) for _ in range(2))
    assert first == second
    runs = [event["run"]["runId"] for event in first]
    assert runs[::2] == runs[1::2]
    assert len(set(runs)) == len(runs) // 2 == 10  # all steps except the one that has not happened
    jobs = {event["job"]["name"] for event in first}
    assert {"billing", "audit", "committed", "redriven"} <= jobs
    assert "order-4711" not in json.dumps(first)


def test_an_entry_of_a_retry_store_has_no_event() -> None:
    sent = record_step(1, 0, "orders", "sent to orders")
    entry = replace(sent, id="missing:1", lane="billing", record=None, missing=MissingRecord("retry_store", "waits"))
    story = Story("key", sent.at, [sent, entry], [Edge("retried", sent.id, entry.id, None, "failed")], [])
    assert list(story_events(story)) == []


def test_links_of_topics_become_events() -> None:
    events = list(map(Serde.to_dict, graph_events(GRAPH, "rocketmq://lake")))
    for event in events:
        check_event(event)
    assert [(event["eventType"], event["inputs"][0]["name"], event["outputs"][0]["name"]) for event in events] == [
        ("START", "orders", "payments"), ("COMPLETE", "orders", "payments"),
    ]  # fmt: skip


def test_a_server_receives_each_event_with_the_api_key(server: str) -> None:
    count = write_events(story_events(order_story()), server, "secret")
    assert count == len(Server.got) == 20
    assert {(path, key) for path, key, _ in Server.got} == {("/api/v1/lineage", "Bearer secret")}
    for _, _, event in Server.got:
        check_event(event)
    write_events(graph_events(GRAPH, "n"), f"{server}/my/lineage?tenant=a")
    assert Server.got[-1][:2] == ("/my/lineage?tenant=a", None)


def test_an_event_that_a_server_refuses_is_an_error_without_the_password(server: str) -> None:
    with pytest.raises(JobError, match="did not accept event 1") as caught:
        write_events(story_events(order_story()), f"{server.replace('//', '//user:hidden@')}/other")
    assert caught.value.exit_code == ExitCode.FAILED
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("target", ["http://", "s3://a/b", "/no/such/folder/x"])
def test_invalid_targets_are_refused(target: str) -> None:
    with pytest.raises((JobError, OutputFileError), match="--openlineage"):
        check_event_target(target)
