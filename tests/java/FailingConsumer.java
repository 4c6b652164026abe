import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Consumes a topic and fails every message, until all of them are dead letters. Trace is on.
 *
 * <p>Arguments: name server, topic, group, maximal reconsume times, time limit in seconds.
 *
 * <p>Output: one object for every failed delivery, a last one with the number of dead letters. When the time is over
 * before every message of the topic is in {@code %DLQ%group} the program ends with an error.
 */
public final class FailingConsumer {
    public static void main(String[] arguments) {
        Clients.runAndExit(() -> run(arguments));
    }

    private static void run(String[] arguments) throws Exception {
        String nameServer = arguments[0];
        String topic = arguments[1];
        String group = arguments[2];
        DefaultMQProducer asker = Clients.producer(nameServer, "failing-consumer-asker", "ZLIB", false);
        Clients.Arrivals arrivals = new Clients.Arrivals(asker);
        long messages = arrivals.count(topic);
        Traces traces = Traces.ofConsumer();
        DefaultMQPushConsumer consumer = start(nameServer, topic, group, Integer.parseInt(arguments[3]), traces);
        Clients.waitUntil(
                messages + " dead letters of " + group,
                Integer.parseInt(arguments[4]),
                () -> arrivals.count("%DLQ%" + group) >= messages);
        Clients.endAtTheEnd(consumer, asker, traces, Integer.parseInt(arguments[4]));
        Lines.print(Lines.row("event", "dead", "count", arrivals.count("%DLQ%" + group)));
        asker.shutdown();
    }

    private static DefaultMQPushConsumer start(
            String nameServer, String topic, String group, int maxReconsumeTimes, Traces traces) throws Exception {
        DefaultMQPushConsumer consumer = Clients.quick(new DefaultMQPushConsumer(group, true, null), nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(maxReconsumeTimes);
        consumer.subscribe(topic, "*");
        AtomicInteger count = new AtomicInteger();
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            for (MessageExt message : batch) {
                Lines.print(Lines.row(
                        "event", "failed",
                        "count", count.incrementAndGet(),
                        "topic", message.getTopic(),
                        "unique_key", message.getMsgId(),
                        "offset_msg_id", ((MessageClientExt) message).getOffsetMsgId(),
                        "reconsume_times", message.getReconsumeTimes()));
                traces.owe(message.getMsgId());
            }
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        return consumer;
    }
}
