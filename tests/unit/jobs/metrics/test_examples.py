"""Tests that the dashboard and alert rules in conf/examples use metrics and labels of `commitlake metrics`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from commitlake.jobs.metrics import archive_metrics, lag_metrics, traffic_metrics
from commitlake.jobs.metrics.gauges import availability_gauge
from commitlake.jobs.metrics.server import HEALTH_PATH, PATH
from commitlake.pipelines.archive_health.state import ArchiveState
from commitlake.pipelines.archive_health.traffic import Traffic
from commitlake.pipelines.lag.store_lag import LagAnswer

EXAMPLES = Path(__file__).parents[4] / "conf" / "examples"
OF_PROMETHEUS = {"__name__", "instance", "job"}
# Labels by which apache/rocketmq-exporter (e1ab2dd5) selects, groups and names series in rocketmq_exporter.json, in
# rocketmq_exporter_overview.json and in example.rules. The labels Cluster and Env of the first are those of a scrape
# target.
OF_THE_EXPORTERS_PANELS = {
    "rocketmq_broker_tps": {"broker"},
    "rocketmq_consumer_offset": {"broker", "topic", "group"},
    "rocketmq_consumer_tps": {"cluster", "broker", "topic", "group"},
    "rocketmq_group_diff": {"topic", "group"},
    "rocketmq_group_get_latency_by_storetime": {"broker", "topic", "group"},
    "rocketmq_group_retrydiff": {"group"},
    "rocketmq_producer_message_size": {"broker", "topic"},
    "rocketmq_producer_offset": {"broker", "topic"},
    "rocketmq_producer_tps": {"cluster", "broker", "topic"},
    "rocketmq_topic_dlq_offset": {"broker"},
    "rocketmq_topic_retry_offset": {"broker"},
}
ONLY_OF_RUNNING_BROKERS = (
    "rocketmq_broker_qps",
    "rocketmq_consumer_message_size",
    "rocketmq_client_*",
    "rocketmq_brokeruntime_*",
)
_METRIC = re.compile(r"\b((?:rocketmq|commitlake)_\w+)(?:\{([^}]*)\})?")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPED = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")
_OF_ALERT = re.compile(r"\$labels\.(\w+)")
_VARIABLE = re.compile(r"label_values\((\w+), (\w+)\)")


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    """Labels of each metric."""
    families = [
        *lag_metrics.lag_metrics(LagAnswer([], []), "shop"),
        *traffic_metrics.traffic_metrics(Traffic(), LagAnswer([], []), "shop"),
        *archive_metrics.archive_metrics(ArchiveState([]), []),
        availability_gauge(is_readable=True),
    ]
    return {family.name: set(family._labelnames) for family in families}


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((EXAMPLES / "alerts.yml").read_text())
    assert set(document) == {"groups"}
    return [rule for group in document["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    document = json.loads((EXAMPLES / "grafana_dashboard.json").read_text())
    found: list[dict[str, Any]] = document["panels"]
    return found


def expressions() -> Iterator[str]:
    """Return all PromQL expressions of dashboard and rules."""
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in panels() for target in panel.get("targets", ()))


@pytest.mark.parametrize("expression", list(expressions()))
def test_expressions_use_only_existing_metrics_and_labels(expression: str, known: dict[str, set[str]]) -> None:
    asked = _METRIC.findall(expression)
    assert asked
    for name, selectors in asked:
        assert name in known
        assert set(_LABEL.findall(selectors)) <= known[name]
    grouped = {label.strip() for labels in _GROUPED.findall(expression) for label in labels.split(",")}
    assert grouped <= set.intersection(*(known[name] for name, _ in asked))


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_has_a_severity_and_uses_labels_of_its_expression(
    rule: dict[str, Any], known: dict[str, set[str]]
) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in {"warning", "critical"}
    grouped = _GROUPED.findall(rule["expr"])
    has = {label.strip() for label in grouped[0].split(",")} if grouped else known[_METRIC.findall(rule["expr"])[0][0]]
    for text in rule["annotations"].values():
        assert set(_OF_ALERT.findall(text)) <= has


def test_panels_and_rules_of_rocketmq_exporter_find_their_metrics_and_labels(known: dict[str, set[str]]) -> None:
    missing = {name: labels - known.get(name, set()) for name, labels in OF_THE_EXPORTERS_PANELS.items()}
    assert {name: labels for name, labels in missing.items() if labels} == {}


def test_panels_of_rocketmq_exporter_that_stay_empty_are_documented(known: dict[str, set[str]]) -> None:
    text = (EXAMPLES.parents[1] / "docs" / "operations" / "monitoring.md").read_text()
    assert tuple(re.findall(r"^\| `(rocketmq_[\w*]+)` \|", text, re.MULTILINE)) == ONLY_OF_RUNNING_BROKERS
    assert not [name for name in known if name.startswith(tuple(one.rstrip("*") for one in ONLY_OF_RUNNING_BROKERS))]


def test_every_necessary_alert_exists() -> None:
    text = (EXAMPLES / "alerts.yml").read_text()
    for name in (
        "rocketmq_group_diff", 'verdict=~"stalled|stopped"', "commitlake_dead_letters",
        "commitlake_archive_last_run_timestamp_seconds", "commitlake_archive_quarantined_bytes",
    ):  # fmt: skip
        assert name in text


def test_variables_and_legends_of_the_dashboard_are_labels(known: dict[str, set[str]]) -> None:
    document = json.loads((EXAMPLES / "grafana_dashboard.json").read_text())
    variables = {variable["name"]: variable for variable in document["templating"]["list"]}
    for variable in variables.values():
        if variable["type"] == "query":
            name, label = _VARIABLE.fullmatch(variable["definition"]).groups()  # type: ignore[union-attr]
            assert label in known[name]
    for expression in expressions():
        assert set(re.findall(r"\$(\w+)", expression)) <= set(variables)
    for panel in document["panels"]:
        for target in panel.get("targets", ()):
            (name, _), *_ = _METRIC.findall(target["expr"])
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= known[name]


def test_panels_have_unique_numbers_and_do_not_overlap() -> None:
    numbers = [panel["id"] for panel in panels()]
    assert len(set(numbers)) == len(numbers)
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {(place["x"] + column, place["y"] + line) for column in range(place["w"]) for line in range(place["h"])}
        assert not taken & cells
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_probes_ask_for_paths_that_are_served() -> None:
    deployment, _ = yaml.safe_load_all((EXAMPLES / "kubernetes" / "metrics.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    paths = {name: probe["httpGet"]["path"] for name, probe in container.items() if name.endswith("Probe")}
    assert paths == {"startupProbe": HEALTH_PATH, "livenessProbe": HEALTH_PATH, "readinessProbe": PATH}


@pytest.mark.parametrize("module", [lag_metrics, archive_metrics, traffic_metrics])
def test_the_table_of_metrics_in_a_module_lists_its_metrics(module: Any, known: dict[str, set[str]]) -> None:
    documented = set(re.findall(r"^    ((?:rocketmq|commitlake)_\w+)", module.__doc__, re.MULTILINE))
    given = {name for name in known if name != "commitlake_up"}
    others = {lag_metrics, archive_metrics, traffic_metrics} - {module}
    for other in others:
        given -= set(re.findall(r"^    ((?:rocketmq|commitlake)_\w+)", other.__doc__ or "", re.MULTILINE))
    assert documented == given
