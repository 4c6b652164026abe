"""A broker's part in replication, whichever it is: what answers its clients, and what talks to its master or slaves."""

from __future__ import annotations

import asyncio

from commitlake.broker_lite.broker.accounts import Accounts
from commitlake.broker_lite.broker.broker import Broker
from commitlake.broker_lite.broker.interfaces import BrokerStore
from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from commitlake.broker_lite.replication.log_copy import LogCopy
from commitlake.broker_lite.replication.master import Master
from commitlake.broker_lite.replication.options import ReplicationOptions, Role
from commitlake.broker_lite.replication.slave import Slave
from commitlake.broker_lite.replication.slave_broker import SlaveDispatcher
from commitlake.broker_lite.replication.sync_master import SyncMasterDispatcher
from commitlake.broker_lite.replication.synchronize import Synchronizer
from commitlake.broker_lite.stores.engine.errors import UnsupportedError
from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.schemas.remoting.name_server_headers import RegisterBrokerResponse


class Part:
    """A master, with or without slaves, or a slave.

    Attributes:
        dispatcher: answers clients.
    """

    def __init__(
        self, store: BrokerStore, broker: BrokerOptions, options: ReplicationOptions, accounts: Accounts | None
    ) -> None:
        """Take a part; `start` begins to play it.

        Args:
            store: the broker's messages; a slave's is open as a copy.
            broker: the broker's settings.
            options: which part.
            accounts: who may use the broker; None for everybody.

        Raises:
            UnsupportedError: if there are to be slaves, and the store's layout has none.
        """
        self._store = store
        self._options = options
        if options.role is Role.SLAVE or options.listen is not None:
            self._check_layout()
        self._master: Master | None = None
        self._slave: Slave | None = None
        self.dispatcher = self._make_dispatcher(broker, accounts)

    def _make_dispatcher(self, options: BrokerOptions, accounts: Accounts | None) -> Dispatcher:
        if self._options.role is Role.SLAVE:
            broker = Broker(self._store, options)
            dispatcher = SlaveDispatcher(broker, accounts)
            log = LogCopy(self._check_layout())
            self._slave = Slave(log, Synchronizer(broker), self._options, dispatcher.answer_arrived)
            return dispatcher
        broker = Broker(self._store, options)
        if self._options.role is Role.SYNC_MASTER:
            return SyncMasterDispatcher(broker, accounts, self._has_slave_near, self._options.slave_timeout_ms)
        return Dispatcher(broker, accounts)

    def _check_layout(self) -> MessageStore:
        if not isinstance(self._store, MessageStore):
            raise UnsupportedError(f"{self._store.path}: only a log in RocketMQ's layout is copied to slaves")
        return self._store

    def _has_slave_near(self, log_end: int) -> bool:
        return self._master is not None and self._master.has_slave_near(log_end)

    def _copied(self, log_end: int) -> None:
        if isinstance(self.dispatcher, SyncMasterDispatcher):
            self.dispatcher.copied(log_end)

    @property
    def has_slaves(self) -> bool:
        """Whether slaves may come."""
        return self._master is not None

    @property
    def is_looking(self) -> bool:
        """Whether this is a slave that was not told yet where its master is."""
        return self._slave is not None and not self._slave.knows_master

    async def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Listen for slaves, or follow a master.

        Raises:
            OSError: if the port is not free.
        """
        if self._slave is not None:
            self._slave.start(loop)
        elif self._options.listen is not None:
            self._master = Master(self._check_layout(), self._options, loop, self._copied)
            await self._master.start()

    def send(self) -> None:
        """Give slaves what the log has got; to be called when some requests were handled."""
        if self._master is not None:
            self._master.send()

    def told(self, answer: RegisterBrokerResponse) -> None:
        """Take what a name server says of the master."""
        if self._slave is not None:
            self._slave.told(answer)

    def is_owed(self, now_ms: int) -> bool:
        """Whether answers still wait for a slave, at the end of the process."""
        if not isinstance(self.dispatcher, SyncMasterDispatcher):
            return False
        self.send()
        self.dispatcher.expire(now_ms)
        return self.dispatcher.is_waiting

    async def leave_master(self) -> None:
        """Follow no longer: the store is to be closed."""
        if self._slave is not None:
            await self._slave.stop()

    async def leave_slaves(self) -> None:
        """Let the slaves go."""
        if self._master is not None:
            await self._master.stop()
