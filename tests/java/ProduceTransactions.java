import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * The transactional kinds of ProduceEveryKind, one message each, named by what becomes of them:
 *
 * <pre>
 * commit     committed at once
 * rollback   rolled back at once
 * check      left unknown; committed when the broker checks back
 * given_up   left unknown at every check, until the broker gives it up (TRANS_CHECK_MAX_TIME_TOPIC)
 * immune     left unknown, and not to be asked for within the hour; given up all the same, as every look counts
 * pending    left unknown at the end: whether it was checked depends on when the broker stops
 * </pre>
 */
final class ProduceTransactions {
    private static final String TOPIC = "EveryTransaction";
    private static final String OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
    private static final String GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC";
    /** The broker's response code; its class has another package in each version. */
    private static final int TOPIC_NOT_EXIST = 17;

    private static final int TRACE_LIMIT_SECONDS = 60;
    private static final String[] OUTCOMES = {"check", "given_up", "immune", "commit", "rollback"};
    private final TransactionMQProducer producer;
    private final DefaultMQPullConsumer puller;
    private final Traces traces = Traces.ofProducer();

    private ProduceTransactions(String nameServer) throws Exception {
        this.producer = start(nameServer);
        this.puller = Clients.puller(nameServer, "every-transaction-puller");
    }

    /** Sends them and promises that those that will be decided are decided and marked so; to be closed after that. */
    static AutoCloseable send(String nameServer, Clients.Arrivals arrivals) throws Exception {
        ProduceTransactions transactions = new ProduceTransactions(nameServer);
        MessageQueue marks = new MessageQueue(OP_TOPIC, arrivals.brokerName, 0);
        long decided = transactions.decidedHalves(marks);
        arrivals.promise(TOPIC, 2);
        arrivals.promise(GIVEN_UP_TOPIC, 2);
        arrivals.promise("marks of 3 more halves", () -> transactions.decidedHalves(marks) >= decided + 3);
        for (String outcome : OUTCOMES) {
            transactions.send(outcome);
        }
        return transactions::close;
    }

    /** Sends one that stays undecided; to be closed. */
    static AutoCloseable sendPending(String nameServer) throws Exception {
        ProduceTransactions transactions = new ProduceTransactions(nameServer);
        transactions.send("pending");
        return transactions::close;
    }

    private void close() throws Exception {
        traces.await(producer.getNamesrvAddr(), TRACE_LIMIT_SECONDS);
        producer.shutdown();
        puller.shutdown();
    }

    private void send(String outcome) throws Exception {
        Message message = new Message(TOPIC, outcome, "transaction-" + outcome, ProduceEveryKind.text(outcome, 0));
        if (outcome.equals("immune")) {
            message.putUserProperty("CHECK_IMMUNITY_TIME_IN_SECONDS", "3600");
        }
        SendResult result = producer.sendMessageInTransaction(message, outcome);
        traces.owe(result.getMsgId());
        ProduceEveryKind.sent("transaction_" + outcome, message, message.getBody(), result);
    }

    private static TransactionMQProducer start(String nameServer) throws Exception {
        TransactionMQProducer producer = Clients.quick(
                new TransactionMQProducer((String) null, "every-transaction", (RPCHook) null, true, null), nameServer);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object outcome) {
                return decide("commit".equals(outcome), "rollback".equals(outcome));
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                // A check that came too early for the mark must repeat what was decided.
                String outcome = message.getTags();
                return decide("commit".equals(outcome) || "check".equals(outcome), "rollback".equals(outcome));
            }
        });
        producer.start();
        return producer;
    }

    private static LocalTransactionState decide(boolean commit, boolean rollback) {
        if (commit) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
        return rollback ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
    }

    /**
     * Returns how many half messages the broker has marked as decided.
     *
     * <p>From 5.1 on it writes a mark up to three seconds later, several in one record. 4.9.x writes a record for each
     * at once, and lets nobody read them.
     */
    private long decidedHalves(MessageQueue marks) throws Exception {
        Set<String> halves = new HashSet<>();
        try {
            for (MessageExt mark : Clients.pullAll(puller, marks)) {
                String listed = new String(mark.getBody(), StandardCharsets.UTF_8);
                halves.addAll(Arrays.asList(listed.split(",")));
            }
        } catch (MQBrokerException refused) {
            if (refused.getResponseCode() != TOPIC_NOT_EXIST) {
                throw refused;
            }
            return puller.maxOffset(marks);
        }
        return halves.size();
    }
}
