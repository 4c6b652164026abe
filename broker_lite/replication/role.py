"""Replication role of a broker: the objects that serve clients, slaves or a master depending on the role."""

from __future__ import annotations

import asyncio

from commitlake.broker_lite.broker.accounts import Accounts
from commitlake.broker_lite.broker.broker import Answering, Broker
from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.broker.store_interfaces import BrokerStore
from commitlake.broker_lite.errors import UnsupportedError
from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from commitlake.broker_lite.protocol import Channel
from commitlake.broker_lite.replication.log_copy import LogCopy
from commitlake.broker_lite.replication.master import Master
from commitlake.broker_lite.replication.options import ReplicationOptions, Role
from commitlake.broker_lite.replication.slave import Slave
from commitlake.broker_lite.replication.sync_master import SyncMasterDispatcher
from commitlake.broker_lite.replication.table_synchronizer import TableSynchronizer
from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.name_server_headers import RegisterBrokerResponse

_BUSY = "[REJECTREQUEST]system busy, start flow control for a while"
_NOT_HERE = "Can't modify topic or subscription group from slave broker, please execute it from master broker."

_REFUSALS: dict[int, tuple[ResponseCode, str | None]] = {
    RequestCode.SEND_MESSAGE: (ResponseCode.SYSTEM_BUSY, _BUSY),
    RequestCode.SEND_MESSAGE_V2: (ResponseCode.SYSTEM_BUSY, _BUSY),
    RequestCode.SEND_BATCH_MESSAGE: (ResponseCode.SYSTEM_BUSY, _BUSY),
    RequestCode.CONSUMER_SEND_MSG_BACK: (ResponseCode.SYSTEM_BUSY, _BUSY),
    RequestCode.SEND_REPLY_MESSAGE: (ResponseCode.SYSTEM_BUSY, _BUSY),
    RequestCode.SEND_REPLY_MESSAGE_V2: (ResponseCode.SYSTEM_BUSY, _BUSY),
    RequestCode.END_TRANSACTION: (ResponseCode.SLAVE_NOT_AVAILABLE, None),
    RequestCode.UPDATE_AND_CREATE_TOPIC: (ResponseCode.SYSTEM_ERROR, _NOT_HERE),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: (ResponseCode.SYSTEM_ERROR, _NOT_HERE),
    RequestCode.DELETE_TOPIC_IN_BROKER: (ResponseCode.SYSTEM_ERROR, _NOT_HERE),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (ResponseCode.SYSTEM_ERROR, _NOT_HERE),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: (ResponseCode.SYSTEM_ERROR, _NOT_HERE),
}
_PULLS = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})


class SlaveDispatcher(Dispatcher):
    """Dispatcher of a slave: it answers pulls and queries, and refuses everything that would be written to the log.

    Only `LogCopy` writes to the store. Refused requests and messages are those of RocketMQ: a producer sees that the
    broker is busy, and tries another one. Source: SendMessageProcessor.rejectRequest, EndTransactionProcessor,
    AdminBrokerProcessor.validateSlave, DefaultPullMessageResultHandler (5.5.0).
    """

    def _compute_answer(self, channel: Channel, request: Command) -> Command | Answering | None:
        refusal = _REFUSALS.get(request.code)
        if refusal is not None:
            return request.reply(refusal[0], remark=refusal[1])
        return super()._compute_answer(channel, request)

    def _send_answer(self, channel: Channel, request: Command, answer: Command | None, previous_log_end: int) -> None:
        if answer is not None and answer.code == ResponseCode.PULL_OFFSET_MOVED and request.code in _PULLS:
            # The offset may exist on the master, whose log may be longer at both ends.
            fields = {**answer.ext_fields, "nextBeginOffset": request.ext_fields.get("queueOffset", "0")}
            answer = request.reply(ResponseCode.PULL_RETRY_IMMEDIATELY, fields, remark=answer.remark)
        super()._send_answer(channel, request, answer, previous_log_end)

    def run_periodic_work(self, now_ms: int) -> bool:
        """Do periodic work, except for delayed messages and transactions, which only the master handles."""
        self.broker.statistics.take_due_samples(now_ms)
        self._serve_waiting_clients(now_ms)
        return False


class ReplicationRole:
    """Replication role of a broker: a master, with or without slaves, or a slave.

    Attributes:
        dispatcher: handler of the clients' requests.
    """

    def __init__(
        self, store: BrokerStore, broker: BrokerOptions, options: ReplicationOptions, accounts: Accounts | None
    ) -> None:
        """Create the objects for the broker's role; `start` opens network connections.

        Args:
            store: store of the broker; that of a slave is open as a copy.
            accounts: accounts that may use the broker; None if requests need no signature.

        Raises:
            UnsupportedError: if replication is configured and the store's layout does not support it.
        """
        self._store = store
        self._options = options
        if options.role is Role.SLAVE or options.listen is not None:
            self._require_rocketmq_store()
        self._master: Master | None = None
        self._slave: Slave | None = None
        self.dispatcher = self._make_dispatcher(broker, accounts)

    def _make_dispatcher(self, options: BrokerOptions, accounts: Accounts | None) -> Dispatcher:
        if self._options.role is Role.SLAVE:
            broker = Broker(self._store, options)
            dispatcher = SlaveDispatcher(broker, accounts)
            log = LogCopy(self._require_rocketmq_store())
            self._slave = Slave(log, TableSynchronizer(broker), self._options, dispatcher.answer_held_pulls)
            return dispatcher
        broker = Broker(self._store, options)
        if self._options.role is Role.SYNC_MASTER:
            return SyncMasterDispatcher(broker, accounts, self._has_slave_in_range, self._options.slave_timeout_ms)
        return Dispatcher(broker, accounts)

    def _require_rocketmq_store(self) -> MessageStore:
        if not isinstance(self._store, MessageStore):
            raise UnsupportedError(f"{self._store.path}: replication needs a store in RocketMQ's layout")
        return self._store

    def _has_slave_in_range(self, log_end: int) -> bool:
        return self._master is not None and self._master.has_slave_in_range(log_end)

    def _on_log_copied(self, log_end: int) -> None:
        if isinstance(self.dispatcher, SyncMasterDispatcher):
            self.dispatcher.on_log_copied(log_end)

    @property
    def has_slaves(self) -> bool:
        """True if slaves may connect."""
        return self._master is not None

    @property
    def needs_master(self) -> bool:
        """True for a slave that does not know the address of its master yet."""
        return self._slave is not None and not self._slave.knows_master

    async def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Listen for slaves as a master, or connect to the master as a slave.

        Raises:
            OSError: if the port cannot be opened.
        """
        if self._slave is not None:
            self._slave.start(loop)
        elif self._options.listen is not None:
            self._master = Master(self._require_rocketmq_store(), self._options, loop, self._on_log_copied)
            await self._master.start()

    def send_log(self) -> None:
        """Send new bytes of the log to the slaves; call this after requests were handled."""
        if self._master is not None:
            self._master.send_log()

    def on_registered(self, answer: RegisterBrokerResponse) -> None:
        """Use the master's address in a name server's answer to the registration."""
        if self._slave is not None:
            self._slave.on_registered(answer)

    def has_pending_answers(self, now_ms: int) -> bool:
        """Send new bytes of the log, and return whether answers still wait for a slave; called during shutdown."""
        if not isinstance(self.dispatcher, SyncMasterDispatcher):
            return False
        self.send_log()
        self.dispatcher.send_expired_answers(now_ms)
        return self.dispatcher.has_waiting_answers

    async def disconnect_from_master(self) -> None:
        """Disconnect from the master, because the store will be closed."""
        if self._slave is not None:
            await self._slave.stop()

    async def disconnect_slaves(self) -> None:
        """Disconnect the slaves."""
        if self._master is not None:
            await self._master.stop()
