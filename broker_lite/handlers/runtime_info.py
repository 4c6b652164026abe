"""Requests for the broker's state and statistics. Source: AdminBrokerProcessor, StoreStatsService (5.5.0)."""

from __future__ import annotations

import shutil
from collections.abc import Iterable

from commitlake.broker_lite.broker import statistics
from commitlake.broker_lite.broker.broker import Broker, Handlers
from commitlake.broker_lite.protocol import Channel
from commitlake.schemas.remoting.admin_headers import StatsDataRequest
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.ext_fields import from_ext_fields
from commitlake.schemas.remoting.frames import VERSION, Command
from commitlake.schemas.remoting.json_fields import serialize_body
from commitlake.schemas.remoting.routes import KvTable

_GIB = 1 << 30


def get_runtime_info(broker: Broker, _channel: Channel, request: Command) -> Command:
    """Answer with counters, rates and state of the broker, as texts under RocketMQ's names."""
    table = _counter_values(broker) | _broker_state_values(broker) | _disk_values(broker) | _delay_values(broker)
    return request.reply(ResponseCode.SUCCESS, body=serialize_body(KvTable(table)))


def _counter_values(broker: Broker) -> dict[str, str]:
    counts, cluster, now_ms = broker.statistics, broker.options.cluster, broker.now_ms()
    put, got = counts.total(statistics.BROKER_PUT_NUMS, cluster), counts.total(statistics.BROKER_GET_NUMS, cluster)
    put_morning, put_yesterday = counts.day_start_totals(statistics.BROKER_PUT_NUMS, cluster)
    got_morning, got_yesterday = counts.day_start_totals(statistics.BROKER_GET_NUMS, cluster)
    size = counts.total(statistics.BROKER_PUT_SIZE, cluster)
    table = {
        "msgPutTotalTodayNow": str(put),
        "msgPutTotalTodayMorning": str(put_morning),
        "msgPutTotalYesterdayMorning": str(put_yesterday),
        "msgGetTotalTodayNow": str(got),
        "msgGetTotalTodayMorning": str(got_morning),
        "msgGetTotalYesterdayMorning": str(got_yesterday),
        "putMessageTimesTotal": str(put),
        "putMessageSizeTotal": str(size),
        "putMessageAverageSize": f"{size / put if put else 0.0}",
        "putTps": _rates_text(counts.rates(statistics.BROKER_PUT_NUMS, cluster, now_ms)),
    }
    got_rates = _rates_text(counts.rates(statistics.BROKER_GET_NUMS, cluster, now_ms))
    return table | dict.fromkeys(("getTotalTps", "getFoundTps", "getTransferedTps", "getTransferredTps"), got_rates)


def _rates_text(rates: Iterable[float]) -> str:
    return " ".join(f"{rate:.1f}" for rate in rates)


def _broker_state_values(broker: Broker) -> dict[str, str]:
    """Return texts on the broker's state; 0 for features that this broker lacks, such as request queues."""
    store, now_ms = broker.store, broker.now_ms()
    seconds = (now_ms - broker.started_ms) // 1000
    days, hours, minutes = seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60
    first = store.get_at(store.min_physical_offset)
    return {
        "brokerVersion": str(VERSION),
        "brokerVersionDesc": "broker_lite",
        "brokerActive": "true",
        "bootTimestamp": str(broker.started_ms),
        "startAcceptSendRequestTimeStamp": str(broker.started_ms),
        "runtime": f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]",
        "commitLogMinOffset": str(store.min_physical_offset),
        "commitLogMaxOffset": str(store.max_physical_offset),
        "earliestMessageTimeStamp": str(first.store_timestamp if first else -1),
        "dispatchBehindBytes": "0",
        "pageCacheLockTimeMills": "0",
        "remainTransientStoreBufferNumbs": "0",
        "sendThreadPoolQueueSize": "0",
        "sendThreadPoolQueueHeadWaitTimeMills": "0",
        "pullThreadPoolQueueSize": "0",
        "pullThreadPoolQueueHeadWaitTimeMills": "0",
        "queryThreadPoolQueueHeadWaitTimeMills": "0",
        "EndTransactionQueueSize": "0",
        "ackThreadPoolQueueSize": "0",
        "ackThreadPoolQueueHeadWaitTimeMills": "0",
    }


def _disk_values(broker: Broker) -> dict[str, str]:
    disk = shutil.disk_usage(broker.store.path)
    ratio = f"{disk.used / disk.total:.4f}"
    return {
        "commitLogDirCapacity": f"Total : {disk.total / _GIB:.1f} GiB, Free : {disk.free / _GIB:.1f} GiB.",
        "commitLogDiskRatio": ratio,
        "consumeQueueDiskRatio": ratio,
    }


def _delay_values(broker: Broker) -> dict[str, str]:
    offsets = broker.store.config.delay_offsets
    table = {}
    for level in range(1, broker.delivery.delay_level_count + 1):
        end = broker.store.max_offset(broker.delivery.schedule_topic, level - 1)
        if end:
            table[f"scheduleMessageOffset_{level}"] = f"{offsets.get(level)},{end}"
    return table


def get_stats_data(broker: Broker, _channel: Channel, request: Command) -> Command:
    """Answer with the totals and rates of a count for the last minute, hour and day."""
    header = from_ext_fields(StatsDataRequest, request.ext_fields)
    data = broker.statistics.stats_data(header.stats_name, header.stats_key)
    if data is None:
        remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
    return request.reply(ResponseCode.SUCCESS, body=serialize_body(data))


HANDLERS: Handlers = {
    RequestCode.GET_BROKER_RUNTIME_INFO: get_runtime_info,
    RequestCode.VIEW_BROKER_STATS_DATA: get_stats_data,
}
