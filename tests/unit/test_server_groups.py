"""Tests of the groups of tests against real servers: each process makes a group's servers once."""

from __future__ import annotations

from unittest.mock import Mock

from tests.support.server_groups import LONGEST, MAX_WITH_SPARK, GroupScheduling, file_group, group, place

SHARED = [f"tests/integration/hbase/test_{name}.py::test_it" for name in ("jobs", "source", "tables")]
OTHERS = [f"tests/integration/spark/test_{name}.py::test_it[{number}]" for name in "ab" for number in range(3)]
APART = [f"tests/integration/killed/test_killed_archive.py::test_{number}" for number in range(2)]


def test_one_process_runs_all_tests_of_a_group() -> None:
    nodes = [Mock(shutting_down=False) for _ in range(2)]
    config = Mock(getvalue=lambda _: ["popen"] * 2, option=Mock(loadscopereorder=False))
    scheduling = GroupScheduling(config)
    tests = SHARED + OTHERS
    for node in nodes:
        scheduling.add_node(node)
        scheduling.add_node_collection(node, tests)
    scheduling.schedule()
    sent = [[tests[number] for call in node.send_runtest_some.mock_calls for number in call.args[0]] for node in nodes]
    assert sent == [SHARED, OTHERS[:3]]


def test_few_processes_start_spark() -> None:
    with_spark = ("packs", "profile", "skipping", "source", "stream")
    names = (*with_spark, "cluster", "follow", "demo")  # the others start processes with Spark
    tests = [f"tests/integration/spark/test_{name}.py::test_it[{number}]" for name in names for number in range(3)]
    nodes = [Mock(shutting_down=False) for _ in range(MAX_WITH_SPARK + 1)]
    config = Mock(getvalue=lambda _: ["popen"] * len(nodes), option=Mock(loadscopereorder=False))
    scheduling = GroupScheduling(config)
    for node in nodes:
        scheduling.add_node(node)
        scheduling.add_node_collection(node, tests)
    scheduling.schedule()
    first = [tests[node.send_runtest_some.mock_calls[0].args[0][0]] for node in nodes]
    assert [file_group(nodeid) for nodeid in first] == [
        f"spark/test_{name}.py" for name in ("packs", "profile", "skipping", "cluster")
    ]
    scheduling.mark_test_complete(nodes[3], tests.index(first[3]))  # the process without Spark is done first
    last = tests[nodes[3].send_runtest_some.mock_calls[-1].args[0][0]]
    assert file_group(last) == "spark/test_follow.py"
    scheduling.mark_test_complete(nodes[0], tests.index(first[0]))
    last = tests[nodes[0].send_runtest_some.mock_calls[-1].args[0][0]]
    assert file_group(last) == "spark/test_source.py"


def test_long_tests_that_share_nothing_are_groups_of_their_own() -> None:
    assert len({group(nodeid) for nodeid in APART}) == 2
    assert len({group(nodeid) for nodeid in SHARED}) == 1


def test_tests_that_share_one_of_several_servers_are_a_group() -> None:
    folder = "tests/integration/copies"
    names = ("test_ship.py::test_it[s3]", "test_ship.py::test_it[hdfs]", "test_manifests.py::test_it[True-2-hdfs]")
    assert [group(f"{folder}/{name}") for name in names] == ["copies[s3]", "copies[hdfs]", "copies[hdfs]"]
    assert {place(f"{folder}/{name}") for name in names} < set(range(len(LONGEST)))


def test_long_groups_start_first() -> None:
    assert [place(nodeid) for nodeid in (SHARED[0], APART[0], OTHERS[0])] == [0, 2, len(LONGEST)]
