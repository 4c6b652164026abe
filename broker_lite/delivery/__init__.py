"""Message deliveries on top of a store: delays, retries, dead letters, transactions."""

from commitlake.broker_lite.delivery.delivery import Delivery
from commitlake.broker_lite.errors import DeliveryError, SendBackError, TransactionError

__all__ = ["Delivery", "DeliveryError", "SendBackError", "TransactionError"]
