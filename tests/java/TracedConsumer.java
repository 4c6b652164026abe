import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Consumes a topic until a number of its messages was consumed, and tells every delivery.
 *
 * <p>Arguments: name server, topic, group, way, number of messages, time limit in seconds. The ways:
 *
 * <pre>
 * batch      up to four messages at a time; the first batch fails once; trace is on
 * orderly    queue by queue; each fifth message of a queue fails twice, and is tried again in its place; trace is on
 * untraced   one by one, without trace
 * </pre>
 *
 * <p>Output: an object for each message of each delivery.
 */
public final class TracedConsumer {
    private static final Set<String> CONSUMED = ConcurrentHashMap.newKeySet();
    private static final Traces TRACES = Traces.ofConsumer();

    public static void main(String[] arguments) {
        Clients.runAndExit(() -> run(arguments));
    }

    private static void run(String[] arguments) throws Exception {
        String way = arguments[3];
        int messages = Integer.parseInt(arguments[4]);
        int seconds = Integer.parseInt(arguments[5]);
        DefaultMQProducer asker = Clients.producer(arguments[0], "traced-consumer-asker", "ZLIB", false);
        DefaultMQPushConsumer consumer =
                Clients.quick(new DefaultMQPushConsumer(arguments[2], !way.equals("untraced"), null), arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(way.equals("batch") ? 4 : 1);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.setSuspendCurrentQueueTimeMillis(20);
        consumer.subscribe(arguments[1], "*");
        if (way.equals("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (batch, context) -> {
                MessageExt message = batch.get(0);
                boolean fails = message.getQueueOffset() % 5 == 4 && message.getReconsumeTimes() < 2;
                tell(batch, fails, true);
                return fails ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            AtomicBoolean isFirst = new AtomicBoolean(way.equals("batch"));
            consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
                boolean fails = isFirst.getAndSet(false);
                tell(batch, fails, !way.equals("untraced"));
                return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        Clients.waitUntil(messages + " messages", seconds, () -> CONSUMED.size() >= messages);
        Clients.endAtTheEnd(consumer, asker, TRACES, seconds);
        asker.shutdown();
    }

    private static void tell(List<MessageExt> batch, boolean fails, boolean traced) {
        for (MessageExt message : batch) {
            if (!fails) {
                CONSUMED.add(message.getMsgId());
            }
            // A client leaves out messages without a region, which a broker does not add to those of a batch.
            if (traced && message.getProperty(MessageConst.PROPERTY_MSG_REGION) != null) {
                TRACES.owe(message.getMsgId());
            }
            Lines.print(Lines.row(
                    "unique_key", message.getMsgId(),
                    "offset_msg_id", ((MessageClientExt) message).getOffsetMsgId(),
                    "reconsume_times", message.getReconsumeTimes(),
                    "batch", batch.size(),
                    "outcome", fails ? "failed" : "success"));
        }
    }
}
