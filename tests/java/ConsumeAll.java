import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Pulls every message of some topics from a running broker, each queue from its minimum to its maximum offset.
 *
 * <p>Arguments: name server, topics.
 *
 * <p>Output: one object a message as a consumer sees it (its body decompressed), by topic, queue and offset.
 */
public final class ConsumeAll {
    public static void main(String[] arguments) {
        Clients.runAndExit(() -> run(arguments));
    }

    private static void run(String[] arguments) throws Exception {
        DefaultMQPullConsumer puller = Clients.puller(arguments[0], "consume-all");
        for (int i = 1; i < arguments.length; i++) {
            String topic = arguments[i];
            Clients.waitUntil("route of " + topic, 30, () -> !puller.fetchSubscribeMessageQueues(topic).isEmpty());
            Set<MessageQueue> queues = puller.fetchSubscribeMessageQueues(topic);
            for (MessageQueue queue : new TreeSet<>(queues)) {
                for (MessageExt message : Clients.pullAll(puller, queue)) {
                    print(message);
                }
            }
        }
        puller.shutdown();
    }

    private static void print(MessageExt message) throws Exception {
        Lines.print(Lines.row(
                "topic", message.getTopic(),
                "queue_id", message.getQueueId(),
                "queue_offset", message.getQueueOffset(),
                "physical_offset", message.getCommitLogOffset(),
                "msg_id", message.getMsgId(),
                "unique_key", message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX),
                "keys", Lines.keys(message),
                "tags", message.getTags(),
                "properties", Lines.properties(message),
                "body_sha256", Lines.sha256(message.getBody()),
                "born_timestamp", message.getBornTimestamp(),
                "store_timestamp", message.getStoreTimestamp(),
                "sys_flag", message.getSysFlag(),
                "flag", message.getFlag(),
                "reconsume_times", message.getReconsumeTimes()));
    }
}
