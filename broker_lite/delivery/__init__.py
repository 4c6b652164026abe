"""What a broker does with messages on top of its store: delay, retry, dead letters, transactions."""

from commitlake.broker_lite.delivery.delivery import Delivery
from commitlake.broker_lite.delivery.errors import DeliveryError, SendBackError, TransactionError

__all__ = ["Delivery", "DeliveryError", "SendBackError", "TransactionError"]
