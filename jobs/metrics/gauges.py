"""Construction of gauges with Prometheus' client library.

Control and bidi characters of names are escaped in labels, as in all other output, because a text file may be printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import GaugeMetricFamily

from commitlake.connectors.printable import escape_line

Labels = tuple[str, ...]


def make_gauge(
    name: str, help_text: str, labels: Sequence[str], values: Iterable[tuple[Labels, float]]
) -> GaugeMetricFamily:
    """Return a Prometheus gauge with one value for each set of labels, sorted by labels."""
    family = GaugeMetricFamily(name, help_text, labels=labels)
    for label_values, value in sorted(values):
        family.add_metric([escape_line(label) for label in label_values], value)
    return family


def availability_gauge(*, is_readable: bool) -> GaugeMetricFamily:
    """Return the gauge `up`, which tells whether the measurement succeeded."""
    return make_gauge("commitlake_up", "Whether the figures can be read", (), [((), float(is_readable))])
