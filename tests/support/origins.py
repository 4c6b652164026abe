"""Records of moved messages, as brokers write them: stored topic, properties, and original topic."""

from __future__ import annotations

_HALF, _SCHEDULE, _TIMER = "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
_FAILED = {"REAL_TOPIC": "%RETRY%g", "RETRY_TOPIC": "orders", "DELAY": "3"}

ORIGINS: tuple[tuple[str, dict[str, str], str], ...] = (
    ("orders", {}, "orders"),
    ("orders", {"REAL_TOPIC": "orders", "DELAY": "1"}, "orders"),  # a delayed message that was delivered
    ("copies", {"REAL_TOPIC": "orders", "RETRY_TOPIC": "orders"}, "copies"),  # sent with another message's properties
    (_SCHEDULE, {"REAL_TOPIC": "orders"}, "orders"),
    ("SCHEDULE_TOPIC_XXX", {"REAL_TOPIC": "orders"}, "orders"),  # BoltMQ's
    (_SCHEDULE, {"REAL_TOPIC": "copies", "RETRY_TOPIC": "orders"}, "copies"),
    (_SCHEDULE, _FAILED, "orders"),  # waits for its next delivery to a group
    (_SCHEDULE, {"REAL_TOPIC": "%RETRY%g"}, _SCHEDULE),
    (_TIMER, {"REAL_TOPIC": "订单", "TIMER_OUT_MS": "1"}, "订单"),
    (_HALF, {"REAL_TOPIC": "orders", "TRAN_MSG": "true"}, "orders"),
    (_HALF, {}, _HALF),
    ("RMQ_SYS_TRANS_OP_HALF_TOPIC", {"REAL_TOPIC": "orders"}, "RMQ_SYS_TRANS_OP_HALF_TOPIC"),
    ("%RETRY%g", _FAILED, "orders"),
    ("%RETRY%g", {}, "%RETRY%g"),
    ("%DLQ%g", _FAILED, "orders"),
    ("%DLQ%g", {"REAL_TOPIC": "%RETRY%g"}, "%DLQ%g"),
    ("%DLQ%g", {"DLQ_ORIGIN_TOPIC": "orders"}, "orders"),
    ("%DLQ%g", {"RETRY_TOPIC": "orders", "DLQ_ORIGIN_TOPIC": "copies"}, "orders"),
    ("%RETRY%g_orders", {"ORIGIN_GROUP": "g"}, "orders"),  # POP, retry topics of version 1
    ("%RETRY%g_1_orders_eu", {"ORIGIN_GROUP": "g_1"}, "orders_eu"),
    ("%RETRY%g_orders", {}, "%RETRY%g_orders"),  # the group of a push consumer may have this name
    ("%RETRY%g_orders", {"ORIGIN_GROUP": "x"}, "%RETRY%g_orders"),
    ("%RETRY%g_", {"ORIGIN_GROUP": "g"}, "%RETRY%g_"),
    ("%RETRY%g+orders", {"ORIGIN_GROUP": "g"}, "orders"),  # of version 2
    ("%RETRY%g+orders", {}, "orders"),
    ("%RETRY%g+", {}, "%RETRY%g+"),
    ("%DLQ%g", {"RETRY_TOPIC": "%RETRY%g_orders"}, "orders"),  # failed after the last attempt of a POP consumer
    ("%DLQ%g", {"RETRY_TOPIC": "%RETRY%g+orders", "ORIGIN_GROUP": "g"}, "orders"),
    ("%DLQ%g", {"RETRY_TOPIC": "%RETRY%g"}, "%DLQ%g"),
    (_SCHEDULE, {"REAL_TOPIC": "%RETRY%g_orders", "ORIGIN_GROUP": "g"}, "orders"),
)
