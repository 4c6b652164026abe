"""Tests of a broker's settings."""

from __future__ import annotations

from commitlake.broker_lite.broker.options import BrokerOptions


def test_marks_name_the_place_of_the_broker() -> None:
    options = BrokerOptions(cluster="shops", region="north")
    assert options.added_properties() == {"CLUSTER": "shops", "MSG_REGION": "north", "TRACE_ON": "true"}
