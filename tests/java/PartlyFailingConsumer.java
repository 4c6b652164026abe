import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Consumes a topic, and fails on messages of some keys: always, or the first time only.
 *
 * <p>Arguments: name server, topic, group, maximal reconsume times, keys that always fail, keys that fail once (both with
 * commas between), number of messages to consume, number of dead letters that the group has in the end, time limit in
 * seconds.
 *
 * <p>Output: an object for each delivery, with its properties and whether it failed. The offsets are stored at the end.
 */
public final class PartlyFailingConsumer {
    private static final Set<String> CONSUMED = ConcurrentHashMap.newKeySet();

    public static void main(String[] arguments) {
        Clients.runAndExit(() -> run(arguments));
    }

    private static void run(String[] arguments) throws Exception {
        String group = arguments[2];
        int consumed = Integer.parseInt(arguments[6]);
        int dead = Integer.parseInt(arguments[7]);
        int seconds = Integer.parseInt(arguments[8]);
        DefaultMQProducer asker = Clients.producer(arguments[0], "partly-failing-asker", "ZLIB", false);
        Clients.Arrivals arrivals = new Clients.Arrivals(asker);
        DefaultMQPushConsumer consumer = start(arguments, group);
        Clients.waitUntil(
                consumed + " messages and " + dead + " dead letters",
                seconds,
                () -> CONSUMED.size() >= consumed && arrivals.count("%DLQ%" + group) >= dead);
        Clients.endAtTheEnd(consumer, asker, Traces.ofConsumer(), seconds);
        asker.shutdown();
    }

    private static DefaultMQPushConsumer start(String[] arguments, String group) throws Exception {
        Set<String> failing = new HashSet<>(Arrays.asList(arguments[4].split(",")));
        Set<String> failingOnce = new HashSet<>(Arrays.asList(arguments[5].split(",")));
        DefaultMQPushConsumer consumer = Clients.quick(new DefaultMQPushConsumer(group), arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(Integer.parseInt(arguments[3]));
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.subscribe(arguments[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            MessageExt message = batch.get(0); // a batch is one message, unless somebody asks for more
            boolean failed = failing.contains(message.getKeys())
                    || (failingOnce.contains(message.getKeys()) && message.getReconsumeTimes() == 0);
            Lines.print(Lines.row(
                    "topic", message.getTopic(),
                    "key", message.getKeys(),
                    "failed", failed,
                    "reconsume_times", message.getReconsumeTimes(),
                    "properties", Lines.properties(message)));
            if (failed) {
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            CONSUMED.add(message.getKeys());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }
}
