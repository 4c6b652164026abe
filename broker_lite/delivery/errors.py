"""Errors of deliveries.

    DeliveryError
    ├── SendBackError       there is no message that can be retried
    └── TransactionError    the half message does not exist, belongs to another producer, or is already decided

Errors of the store, such as a refused message, pass through: see `broker_lite.stores.engine.errors`.
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError


class DeliveryError(CommitLakeError):
    """Base class of the errors of deliveries."""


class SendBackError(DeliveryError):
    """Error for a message that cannot be retried."""


class TransactionError(DeliveryError):
    """Error for a half message that cannot be committed or rolled back."""
