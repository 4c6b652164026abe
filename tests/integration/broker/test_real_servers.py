"""broker_lite with the real RocketMQ: at its name server, and with a store that its broker then takes over."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.broker_lite.broker.options import BrokerOptions as LiteOptions
from commitlake.broker_lite.server.registration import registration_command
from commitlake.connectors.rocketmq.network import Network
from commitlake.connectors.rocketmq.options import ClientOptions
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.name_server_headers import RouteRequest
from commitlake.schemas.remoting.routes import TopicRoute
from commitlake.schemas.remoting.topic_and_group_configs import DataVersion, TopicConfig, TopicConfigs
from tests.servers.broker_lite import SMALL_FILES as SMALL
from tests.servers.broker_lite import BrokerLite
from tests.servers.java_programs import look_up, run_java
from tests.servers.process import ServerProcess, free_ports
from tests.servers.remoting import knows_broker
from tests.servers.rocketmq import SMALL_FILES, RocketMQ, StartBroker

VOLUME = 1500


@pytest.mark.long("a real broker goes on with a store that ours has written to each time")
def test_a_real_broker_takes_over_the_store(tmp_path: Path, rocketmq_version: str, start_broker: StartBroker) -> None:
    with BrokerLite(tmp_path / "broker") as broker:
        sent = run_java(rocketmq_version, "ProduceEveryKind", [broker.name_server_address, "volume", "keys", "batch"])
        arguments = [broker.name_server_address, "concurrent", "EveryVolume", "readers", "*", "1", "700", "60"]
        run_java(rocketmq_version, "Consumers", arguments)
        port = int(broker.broker_address.rpartition(":")[2])
    real = start_broker(rocketmq_version, broker.store, options=SMALL_FILES, broker_port=port)
    volume = [row for row in sent if row["kind"] == "volume"]
    keyed = next(row for row in sent if row["kind"] == "keys")
    found = look_up(
        real,
        ("range", "EveryVolume", "-"),
        ("unique", "EveryKeyed", keyed["unique_key"]),
        ("id", "EveryVolume", volume[-1]["offset_msg_id"]),
    )
    assert sum(row["max_offset"] for row in found if row["verb"] == "range") == len(volume)
    assert {row["unique_key"] for row in found if row["verb"] == "unique"} == {keyed["unique_key"]}
    # The group goes on where it was, and what is sent now follows.
    more = run_java(rocketmq_version, "ProduceEveryKind", [real.name_server_address, "volume"])
    arguments = [real.name_server_address, "concurrent", "EveryVolume", "readers", "*", "1", str(len(more)), "60"]
    rest = {row["unique_key"] for row in run_java(rocketmq_version, "Consumers", arguments)}
    assert {row["unique_key"] for row in more} & rest


def test_the_broker_registers_at_a_real_name_server(
    tmp_path: Path, rocketmq_version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = RocketMQ(rocketmq_version, tmp_path / "real")
    real.start_name_server()
    try:
        port = free_ports(1)
        broker = BrokerLite(
            tmp_path / "broker", options=(*SMALL, "--register", real.name_server_address), broker_port=port
        )
        with broker:
            process: ServerProcess = broker.process
            process.wait_until(lambda: knows_broker(real.name_server_address, broker.broker_address), 60)
            sent = run_java(rocketmq_version, "ProduceEveryKind", [real.name_server_address, "plain"])
            assert len(sent) == 20
        # It has unregistered.
        assert not knows_broker(real.name_server_address, broker.broker_address)
        # With very many topics the body is compressed.
        monkeypatch.setattr("commitlake.broker_lite.server.registration.PLAIN_BODY_BYTES", 0)
        # 5.x takes no first registration of a single topic.
        names = ("Compressed", "Another")
        topics = TopicConfigs({name: TopicConfig(name, 3, 5, attributes={}) for name in names}, DataVersion(1, 1))
        request = registration_command(LiteOptions(), topics)
        network = Network(ClientOptions(real.name_server_address))
        network.send_request(
            real.name_server_address, request.code, fields=request.ext_fields, body=bytes(request.body)
        ).result(30)
        route = network.send_and_wait(
            real.name_server_address, RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteRequest("Compressed")
        )
        assert route.body_as(TopicRoute).queue_datas[0][:3] == ("broker-a", 3, 5)
        network.close()
    finally:
        real.kill()
