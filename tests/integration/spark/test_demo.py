"""The demo, with each format that the shop's broker writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.jobs.audit import command as audit
from commitlake.jobs.demo import command as demo
from commitlake.jobs.lag import command as lag
from commitlake.jobs.query import command as query
from commitlake.jobs.verify import command as verify

SAME_PATH = pytest.mark.long("the demo's path is the same for all layouts")


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("layout", "told"),
    [
        ("rocketmq", ("half", "delay", "dlq", "%RETRY%shipping-service")),
        pytest.param("jmq", ("normal",), marks=SAME_PATH),
        pytest.param("boltmq", ("delay", "dlq", "SCHEDULE_TOPIC_XXX ", "%RETRY%shipping-service"), marks=SAME_PATH),
    ],
)
def test_the_demo_archives_and_shows_a_shop(
    layout: str, told: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "demo"
    assert demo.main(["--dir", str(folder), "--layout", layout, "--orders", "20", "--quiet"]) == 0
    by_topic, by_key = capsys.readouterr().out.split("What happened to order-4711:")
    assert all(word in by_topic for word in told)
    assert ("half" in by_topic) == (layout == "rocketmq")
    assert "sent to shipments" in by_key
    assert "Outcomes" in by_key
    assert ("committed to orders" in by_key) == (layout == "rocketmq")
    store, lake = str(folder / "broker-a" / "store"), str(folder / "lake")
    assert verify.main([store, "--local", "--processes", "1", "--quiet"]) == 0
    assert query.main(["--lake", lake, "--key", "order-4711", "--topic", "shipments", "--output", "jsonl"]) == 0
    assert capsys.readouterr().out.count('"topic":"shipments"') == 1
    assert audit.main(["--lake", lake, "--store", store, "--quiet", "--local"]) == 0
    assert lag.main(["--lake", lake, "--group", "mail-service", "--quiet", "--output", "jsonl"]) == 0
    assert '"verdict":"stalled"' in capsys.readouterr().out or layout == "jmq"  # there it has one snapshot
