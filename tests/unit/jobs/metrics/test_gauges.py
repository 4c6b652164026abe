"""Tests that names in labels cannot command a terminal that shows the metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily

from commitlake.jobs.metrics.gauges import make_gauge


class _Collector:
    def __init__(self, family: GaugeMetricFamily) -> None:
        self._family = family

    def collect(self) -> list[GaugeMetricFamily]:
        return [self._family]


def test_labels_show_control_and_bidi_characters_as_escapes() -> None:
    registry = CollectorRegistry()
    registry.register(
        _Collector(make_gauge("lag", "Messages", ("group",), [(("a\x1b[2Jb",), 1.0), (("\u202ec",), 2.0)]))
    )
    text = generate_latest(registry).decode()
    assert 'lag{group="a\\\\x1b[2Jb"} 1.0' in text
    assert 'lag{group="\\\\u202ec"} 2.0' in text
    assert "\x1b" not in text
