import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Consumes a topic from its beginning in one of RocketMQ's ways, until a number of messages has come.
 *
 * <p>Arguments: name server, way, topic, group, tags or SQL92, number of consumers, number of messages (all consumers
 * together), time limit in seconds. The ways:
 *
 * <pre>
 * concurrent   push, several threads
 * orderly      push, queue by queue; every tenth message is first put off
 * broadcast    push, each consumer gets everything
 * sql          push, the expression is SQL92
 * failover     push; when half of the messages have come, the first consumer goes
 * lite         pull
 * forever      push, until it is killed
 * </pre>
 *
 * <p>Output: an object for each message, with the consumer that got it. After the last one it waits a second for more.
 */
public final class Consumers {
    private static final java.util.Set<String> SEEN = ConcurrentHashMap.newKeySet();
    private static final java.util.Set<Integer> BUSY = ConcurrentHashMap.newKeySet();
    private static final CountDownLatch ALL_HAVE_QUEUES = new CountDownLatch(1);
    private static final java.util.Set<String> PUT_OFF = ConcurrentHashMap.newKeySet();

    private static volatile boolean broadcasting;

    public static void main(String[] arguments) {
        Clients.runAndExit(() -> run(arguments));
    }

    private static void run(String[] arguments) throws Exception {
        String way = arguments[1];
        int consumers = Integer.parseInt(arguments[5]);
        int messages = Integer.parseInt(arguments[6]);
        int seconds = Integer.parseInt(arguments[7]);
        if (way.equals("lite")) {
            lite(arguments, messages, seconds);
            return;
        }
        List<DefaultMQPushConsumer> running = new ArrayList<>();
        for (int number = 0; number < consumers; number++) {
            running.add(push(arguments, way, number));
        }
        Clients.waitUntil("queues for every consumer", seconds, () ->
                running.stream().allMatch(consumer -> hasQueues(consumer, arguments[2])));
        ALL_HAVE_QUEUES.countDown();
        if (way.equals("failover")) {
            Clients.waitUntil("half of the messages", seconds, () -> SEEN.size() >= messages / 2);
            running.remove(0).shutdown();
        }
        Clients.waitUntil(messages + " messages", way.equals("forever") ? 3600 : seconds, () -> SEEN.size() >= messages);
        if (way.equals("concurrent")) {
            Clients.waitUntil("messages for every consumer", seconds, () -> BUSY.size() >= consumers);
        }
        Thread.sleep(1000);
        for (DefaultMQPushConsumer consumer : running) {
            consumer.shutdown();
        }
    }

    private static DefaultMQPushConsumer push(String[] arguments, String way, int number) throws Exception {
        DefaultMQPushConsumer consumer = Clients.quick(new DefaultMQPushConsumer(arguments[3]), arguments[0]);
        consumer.setInstanceName("consumer-" + number + "-" + ProcessHandle.current().pid());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPersistConsumerOffsetInterval(500);
        if (way.equals("sql")) {
            consumer.subscribe(arguments[2], MessageSelector.bySql(arguments[4]));
        } else {
            consumer.subscribe(arguments[2], arguments[4]);
        }
        if (way.equals("orderly")) {
            consumer.setSuspendCurrentQueueTimeMillis(50);
            consumer.registerMessageListener((MessageListenerOrderly) (batch, context) -> {
                for (MessageExt message : batch) {
                    if (message.getQueueOffset() % 10 == 9 && PUT_OFF.add(message.getMsgId())) {
                        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                    }
                    print(message, number);
                }
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            if (way.equals("broadcast")) {
                broadcast(consumer);
            }
            consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
                waitForAll();
                for (MessageExt message : batch) {
                    print(message, number);
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        return consumer;
    }

    /** Makes a consumer get everything; the type of the setting has another package in 4.9 than in 5. */
    private static void broadcast(DefaultMQPushConsumer consumer) throws Exception {
        broadcasting = true;
        for (java.lang.reflect.Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                Object broadcasting = method.getParameterTypes()[0].getField("BROADCASTING").get(null);
                method.invoke(consumer, broadcasting);
            }
        }
    }

    private static void lite(String[] arguments, int messages, int seconds) throws Exception {
        DefaultLitePullConsumer consumer = Clients.quick(new DefaultLitePullConsumer(arguments[3]), arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments[2], arguments[4]);
        consumer.start();
        long deadline = System.currentTimeMillis() + seconds * 1000L;
        while (SEEN.size() < messages) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("read " + SEEN.size() + " messages, expected " + messages);
            }
            for (MessageExt message : consumer.poll(500)) {
                print(message, 0);
            }
        }
        consumer.commitSync();
        consumer.shutdown();
    }

    /** Waits until every consumer has queues: the first would consume everything before the others are there. */
    private static void waitForAll() {
        try {
            ALL_HAVE_QUEUES.await();
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private static boolean hasQueues(DefaultMQPushConsumer consumer, String topic) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
                .anyMatch(queue -> queue.getTopic().equals(topic));
    }

    private static void print(MessageExt message, int number) {
        // What comes twice counts once; what consumers of a broadcast get, for each of them.
        SEEN.add(message.getMsgId() + (broadcasting ? "-" + number : ""));
        BUSY.add(number);
        Lines.print(Lines.row(
                "consumer", number,
                "topic", message.getTopic(),
                "queue_id", message.getQueueId(),
                "queue_offset", message.getQueueOffset(),
                "unique_key", message.getMsgId(),
                "tags", message.getTags(),
                "reconsume_times", message.getReconsumeTimes()));
    }
}
