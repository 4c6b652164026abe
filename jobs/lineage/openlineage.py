"""A story, or a graph of topics, as OpenLineage events: in a file, or sent to a server like Marquez.

    OpenLineage   here
    dataset       a topic of a broker: namespace `rocketmq://BROKER`, name the topic
    job           the mover of a message: a consumer group, or the broker's `delayed`, `committed`, `redriven`, …
    run           one step of one message; the same step always has the same run
    event         START at the step's first time, COMPLETE or FAIL at its second time

Needs the extra `openlineage`. Bodies, properties and keys are not sent.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

from commitlake.connectors.atomic_files import open_atomic
from commitlake.connectors.storage.uris import is_uri
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.output_files import check_output_file
from commitlake.pipelines.lineage.message_history import Edge, Step, Story
from commitlake.pipelines.lineage.topic_graph import TopicGraph
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.tables.edges import AbsentReason
from commitlake.schemas.times import format_iso_time

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

NAMESPACE = "commitlake"
API_KEY_VARIABLE = "OPENLINEAGE_API_KEY"
_PRODUCER = "urn:commitlake"
_RUNS = uuid.UUID("6f0d3f0e-5a0b-5c3e-9a57-0c5d0a1b6e21")
_TIMEOUT_S = 10.0
_MAX_NAME = 500


def check_event_target(target: str) -> None:
    """Raise an error if the target of events is invalid, before any work is done.

    Raises:
        JobError: for such a target, or if the package is not installed.
    """
    import importlib.util

    if importlib.util.find_spec("openlineage") is None or importlib.util.find_spec("openlineage.client") is None:
        raise JobError(
            "--openlineage needs the package openlineage, which is not installed",
            "pip install 'commitlake[openlineage]'",
        )
    if _is_url(target):
        if not urlsplit(target).hostname:
            raise JobError(f"--openlineage {target}: expected a URL with the name of a host, found one without")
        return
    path = Path(target)
    if not is_uri(target):
        check_output_file("--openlineage", path)
    else:
        raise JobError(f"--openlineage {target}: expected http://…, https://…, or a file in an existing folder")


def story_events(story: Story) -> Iterator[RunEvent]:
    """Yield a start and a completion event of OpenLineage for each edge of a message's story whose time is known."""
    steps = {step.id: step for step in story.steps}
    for edge in story.edges:
        source, target = steps.get(edge.source), steps.get(edge.target)
        if source is None or target is None or (target.missing is not None and target.at is None):
            continue  # the step has not happened
        if target.missing is not None and target.missing.reason == AbsentReason.RETRY_STORE:
            continue  # a retry store is not a topic, and the failed consumption has an event
        start, end = source.at or target.at, target.at or source.at
        if start is None or end is None:
            continue
        inputs = [_dataset_namespace_and_name(source, story)] if source.lane else []
        outputs = [_dataset_namespace_and_name(target, story)] if target.lane and target.consumption is None else []
        failed = target.consumption is not None and target.consumption.succeeded is False
        yield from _start_and_end_events(_job_name_of_edge(edge, target), f"{edge.kind}:{edge.source}:{edge.target}",
                                         (start, max(start, end)), inputs, outputs, has_failed=failed)  # fmt: skip


def graph_events(graph: TopicGraph, namespace: str) -> Iterator[RunEvent]:
    """Yield two OpenLineage events, start and completion, for each link in a graph of topics.

    Args:
        namespace: Namespace of the topics: the name of the lake.
    """
    for link in graph.links:
        name = f"{link.source} to {link.target}"
        times = graph.start, graph.end
        run = f"{namespace}:{name}:{format_iso_time(graph.start)}:{format_iso_time(graph.end)}"
        yield from _start_and_end_events(name, run, times, [(namespace, link.source)], [(namespace, link.target)])


def _job_name_of_edge(edge: Edge, target: Step) -> str:
    return target.consumption.group if target.consumption is not None else edge.kind


def _dataset_namespace_and_name(step: Step, story: Story) -> tuple[str, str]:
    broker = step.record.broker if step.record is not None else None
    if broker is None:  # for a missing step, use the broker of a neighbouring record
        broker = next((record.broker for record in story.records), "unknown")
    return f"rocketmq://{quote(broker)}", step.lane


def _start_and_end_events(
    job_name: str,
    run_key: str,
    times: tuple[datetime.datetime, datetime.datetime],
    inputs: Iterable[tuple[str, str]],
    outputs: Iterable[tuple[str, str]],
    *,
    has_failed: bool = False,
) -> Iterator[RunEvent]:
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import job_type_job

    about = {"jobType": job_type_job.JobTypeJobFacet("STREAMING", "COMMITLAKE", "JOB", producer=_PRODUCER)}
    inputs, outputs = list(inputs), list(outputs)
    ended = RunState.FAIL if has_failed else RunState.COMPLETE
    for state, at in ((RunState.START, times[0]), (ended, times[1])):
        yield RunEvent(
            eventType=state,
            eventTime=format_iso_time(at, "milliseconds"),
            run=Run(str(uuid.uuid5(_RUNS, run_key.encode("utf-8", "backslashreplace").decode()))),
            job=Job(NAMESPACE, _shorten_name(job_name) or "unknown", facets=dict(about)),
            inputs=[InputDataset(_shorten_name(namespace), _shorten_name(name)) for namespace, name in inputs],
            outputs=[OutputDataset(_shorten_name(namespace), _shorten_name(name)) for namespace, name in outputs],
            producer=_PRODUCER,
        )


def write_events(events: Iterable[RunEvent], target: str, api_key: str = "") -> int:
    """Write events to a file, or send them to a server, and return their number.

    Args:
        target: A file or a URL. A URL without a path gets the path of Marquez, `api/v1/lineage`.
        api_key: Key for the server; not sent if it is empty.

    Raises:
        JobError: if the server does not accept them.
    """
    from openlineage.client.serde import Serde

    if _is_url(target):
        return _send_events(events, target, api_key)
    count = 0
    with open_atomic(Path(target)) as file:
        for event in events:
            file.write(Serde.to_json(event).encode() + b"\n")
            count += 1
    return count


def _send_events(events: Iterable[RunEvent], target: str, api_key: str) -> int:
    from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport

    parts = urlsplit(target)
    more: dict[str, Any] = {"auth": ApiKeyTokenProvider({"apiKey": api_key})} if api_key else {}
    endpoint = parts.path.strip("/") + (f"?{parts.query}" if parts.query else "")
    if endpoint:
        more["endpoint"] = endpoint
    config = HttpConfig(urlunsplit((parts.scheme, parts.netloc, "", "", "")), timeout=_TIMEOUT_S, **more)
    transport = HttpTransport(config)
    count = 0
    try:
        for event in events:
            response = transport.emit(event)
            response.raise_for_status()
            count += 1
    except Exception as error:  # noqa: BLE001 (whatever the client's own HTTP library raises)
        where = urlunsplit((parts.scheme, parts.hostname or "", parts.path, "", ""))
        message = f"{where} did not accept event {count + 1:,}: {_remove_credentials(str(error), parts)}"
        raise JobError(message, "events that it has accepted may be sent again: the runs have the same ids",
                       ExitCode.FAILED) from None  # fmt: skip
    finally:
        transport.close()
    return count


def _remove_credentials(text: str, url_parts: SplitResult) -> str:
    return text.replace(f"{url_parts.username}:{url_parts.password}@", "") if url_parts.password else text


def _is_url(target: str) -> bool:
    return target.lower().startswith(("http://", "https://"))


def _shorten_name(text: str) -> str:
    return text[:_MAX_NAME].encode("utf-8", "backslashreplace").decode()
