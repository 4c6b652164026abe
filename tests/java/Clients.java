import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.store.OffsetStore;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What the programs share: clients that notice changes soon, and waiting with a limit. */
final class Clients {
    /** The property from which a new producer takes its codec; 4.9.x has no other way to choose it. */
    private static final String COMPRESS_TYPE = "rocketmq.message.compressType";

    /** The template of topics: the one topic that every broker here has from its start. */
    private static final String TEMPLATE_TOPIC = "TBW102";

    private Clients() {}

    /** What a program does. */
    interface Program {
        void run() throws Exception;
    }

    /** Runs a program and ends it: clients leave threads that would keep it alive, after a failure for ever. */
    static void runAndExit(Program program) {
        try {
            program.run();
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }

    /** Points a client to the name server, and lets it ask there every half second, not every half minute. */
    static <C extends ClientConfig> C quick(C client, String nameServer) {
        client.setNamesrvAddr(nameServer);
        client.setPollNameServerInterval(500);
        client.setHeartbeatBrokerInterval(1000);
        // On a busy machine a first TLS handshake takes longer than the 3 s that are the default.
        client.setMqClientApiTimeout(15_000);
        return client;
    }

    /** Returns the name of the one broker. */
    static String brokerName(DefaultMQProducer producer) throws Exception {
        return producer.fetchPublishMessageQueues(TEMPLATE_TOPIC).get(0).getBrokerName();
    }

    /** Returns the name of the one broker. */
    static String brokerName(DefaultMQPullConsumer puller) throws Exception {
        return puller.fetchSubscribeMessageQueues(TEMPLATE_TOPIC)
                .iterator()
                .next()
                .getBrokerName();
    }

    /** Starts a producer that compresses large bodies by ZLIB, LZ4 or ZSTD. */
    static DefaultMQProducer producer(String nameServer, String group, String codec, boolean trace) throws Exception {
        System.setProperty(COMPRESS_TYPE, codec);
        DefaultMQProducer producer = quick(new DefaultMQProducer(group, trace, null), nameServer);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        // Asking for a queue of a topic that exists makes a client learn the broker's address, also for other topics.
        waitUntil("broker", 30, () ->
                producer.maxOffset(producer.fetchPublishMessageQueues(TEMPLATE_TOPIC).get(0)) >= 0);
        return producer;
    }

    /** Starts a consumer that pulls where it is told to and commits nothing. */
    static DefaultMQPullConsumer puller(String nameServer, String group) throws Exception {
        DefaultMQPullConsumer puller = quick(new DefaultMQPullConsumer(group), nameServer);
        puller.start();
        waitUntil("broker", 30, () ->
                puller.maxOffset(puller.fetchSubscribeMessageQueues(TEMPLATE_TOPIC).iterator().next()) >= 0);
        return puller;
    }

    /** Pulls every message of a queue, from its minimum to its maximum offset. */
    static List<MessageExt> pullAll(DefaultMQPullConsumer puller, MessageQueue queue) throws Exception {
        List<MessageExt> messages = new ArrayList<>();
        long offset = puller.minOffset(queue);
        long end = puller.maxOffset(queue);
        while (offset < end) {
            PullResult result = puller.pull(queue, "*", offset, 32, 10_000);
            if (result.getPullStatus() == PullStatus.FOUND) {
                messages.addAll(result.getMsgFoundList());
            }
            if (result.getNextBeginOffset() <= offset) {
                throw new IllegalStateException(queue + " stands still at " + offset + " of " + end + ": " + result);
            }
            offset = result.getNextBeginOffset();
        }
        return messages;
    }

    /** Waits until a condition holds; an exception counts as "not yet", its message as the reason. */
    static void waitUntil(String what, int seconds, Callable<Boolean> condition) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        Exception reason = null;
        while (System.nanoTime() < deadline) {
            try {
                if (condition.call()) {
                    return;
                }
            } catch (InterruptedException interrupted) {
                throw interrupted;
            } catch (Exception notYet) {
                reason = notYet;
            }
            Thread.sleep(200);
        }
        throw new IllegalStateException("no " + what + " within " + seconds + " s", reason);
    }

    /**
     * Waits until a consumer has gone past every message of its queues and its traces have arrived, and ends it.
     *
     * <p>The broker stores a retry or a dead letter before the client knows: a client that ends in between gives the next
     * one of its group the same message again, or sends it back a second time.
     */
    static void endAtTheEnd(DefaultMQPushConsumer consumer, DefaultMQProducer asker, Traces traces, int seconds)
            throws Exception {
        OffsetStore offsets = consumer.getDefaultMQPushConsumerImpl().getOffsetStore();
        waitUntil("offsets at the ends of the queues", seconds, () -> {
            for (MessageQueue queue : consumer.getDefaultMQPushConsumerImpl()
                    .getRebalanceImpl()
                    .getProcessQueueTable()
                    .keySet()) {
                long end = asker.maxOffset(queue);
                long consumed = offsets.readOffset(queue, ReadOffsetType.READ_FROM_MEMORY);
                if (end > 0 && consumed < end) {
                    return false;
                }
                if (consumed >= 0) {
                    // With an answer: what a shutdown sends without waiting for one may be lost.
                    offsets.updateConsumeOffsetToBroker(queue, consumed, false);
                }
            }
            return true;
        });
        traces.await(asker.getNamesrvAddr(), seconds);
        consumer.shutdown();
    }

    /**
     * Counts what a broker holds, and waits until promised messages are there.
     *
     * <p>Queues are asked for by number, without a route: the name server hears of a new topic only later.
     */
    static final class Arrivals {
        private static final int QUEUES = 8;
        private final DefaultMQProducer client;
        final String brokerName;
        private final Map<String, Long> promised = new HashMap<>();
        private final Map<String, Callable<Boolean>> conditions = new HashMap<>();

        Arrivals(DefaultMQProducer client) throws Exception {
            this.client = client;
            this.brokerName = brokerName(client);
        }

        /** Returns the number of messages that a topic has ever had. */
        long count(String topic) throws Exception {
            long count = 0;
            for (int queue = 0; queue < QUEUES; queue++) {
                count += client.maxOffset(new MessageQueue(topic, brokerName, queue));
            }
            return count;
        }

        /** Notes, before they are sent, that a number of messages will arrive in a topic. */
        void promise(String topic, int more) throws Exception {
            promised.put(topic, (promised.containsKey(topic) ? promised.get(topic) : count(topic)) + more);
        }

        /** Notes that a condition will hold. */
        void promise(String what, Callable<Boolean> condition) {
            conditions.put(what, condition);
        }

        /** Waits until every topic holds what was promised, and every condition holds. */
        void waitForAll(int seconds) throws Exception {
            for (Map.Entry<String, Long> one : promised.entrySet()) {
                String what = one.getValue() + " messages in " + one.getKey();
                waitUntil(what, seconds, () -> count(one.getKey()) >= one.getValue());
            }
            for (Map.Entry<String, Callable<Boolean>> one : conditions.entrySet()) {
                waitUntil(one.getKey(), seconds, one.getValue());
            }
        }
    }
}
