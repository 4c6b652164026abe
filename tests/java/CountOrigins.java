import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Pulls a topic that a replay has filled, and tells which messages each queue has, in their order.
 *
 * <p>Unlike ConsumeAll, it keeps two short properties of a message, so that a million of them fit.
 *
 * <p>Arguments: name server, topic.
 *
 * <p>Output: one object a queue, with the ORIGIN_PHYSICAL_OFFSET and the ORIGIN_MSG_ID of its messages.
 */
public final class CountOrigins {
    public static void main(String[] arguments) {
        Clients.runAndExit(() -> run(arguments));
    }

    private static void run(String[] arguments) throws Exception {
        DefaultMQPullConsumer puller = Clients.puller(arguments[0], "count-origins");
        String topic = arguments[1];
        Clients.waitUntil("route of " + topic, 30, () -> !puller.fetchSubscribeMessageQueues(topic).isEmpty());
        for (MessageQueue queue : new TreeSet<>(puller.fetchSubscribeMessageQueues(topic))) {
            List<Long> offsets = new ArrayList<>();
            List<String> ids = new ArrayList<>();
            long offset = puller.minOffset(queue);
            long end = puller.maxOffset(queue);
            while (offset < end) {
                PullResult result = puller.pull(queue, "*", offset, 32, 10_000);
                if (result.getPullStatus() == PullStatus.FOUND) {
                    for (MessageExt message : result.getMsgFoundList()) {
                        offsets.add(Long.valueOf(message.getProperty("ORIGIN_PHYSICAL_OFFSET")));
                        ids.add(message.getProperty("ORIGIN_MSG_ID"));
                    }
                }
                if (result.getNextBeginOffset() <= offset) {
                    throw new IllegalStateException(queue + " stands still at " + offset + " of " + end);
                }
                offset = result.getNextBeginOffset();
            }
            Lines.print(Lines.row("queue_id", queue.getQueueId(), "offsets", offsets, "ids", ids));
        }
        puller.shutdown();
    }
}
