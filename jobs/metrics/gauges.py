"""Gauges as Prometheus' client library has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import GaugeMetricFamily

Labels = tuple[str, ...]


def gauge(
    name: str, help_text: str, labels: Sequence[str], values: Iterable[tuple[Labels, float]]
) -> GaugeMetricFamily:
    """Return a gauge with a value for each set of labels, in their order."""
    family = GaugeMetricFamily(name, help_text, labels=labels)
    for label_values, value in sorted(values):
        family.add_metric(label_values, value)
    return family


def up(*, is_readable: bool) -> GaugeMetricFamily:
    """Return the gauge that says whether the figures can be read."""
    return gauge("commitlake_up", "Whether the figures can be read", (), [((), float(is_readable))])
