"""What a broker does not do with a message.

    DeliveryError
    ├── SendBackError       there is no such message to retry
    └── TransactionError    no such half message, another producer's, or one that was decided before

Errors of the store, such as a refused message, pass through: see `broker_lite.stores.engine.errors`.
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError


class DeliveryError(CommitLakeError):
    """A broker does not do this."""


class SendBackError(DeliveryError):
    """A message cannot be retried."""


class TransactionError(DeliveryError):
    """A transaction cannot be decided."""
