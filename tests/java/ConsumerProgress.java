import java.util.Map;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Asks a broker how far groups are in the queues of a topic, as `mqadmin consumerProgress` does.
 *
 * <p>Arguments: name server, broker address, topic, groups. With 4.9, a group needs a retry topic, which it has once it
 * had a client.
 *
 * <p>Output: a row for each group and queue: "group", "topic", "queue_id", "broker_offset", "consumer_offset",
 * "pull_offset" (null before 5.0) and "last_timestamp", ms since 1970, 0 for none.
 */
public final class ConsumerProgress {
    public static void main(String[] arguments) {
        Clients.runAndExit(() -> run(arguments));
    }

    private static void run(String[] arguments) throws Exception {
        DefaultMQAdminExt admin = Clients.quick(new DefaultMQAdminExt(10_000), arguments[0]);
        admin.start();
        for (int number = 3; number < arguments.length; number++) {
            String group = arguments[number];
            Object stats = stats(admin, arguments[1], group, arguments[2]);
            Map<?, ?> table = (Map<?, ?>) stats.getClass().getMethod("getOffsetTable").invoke(stats);
            for (Map.Entry<?, ?> one : table.entrySet()) {
                MessageQueue queue = (MessageQueue) one.getKey();
                Lines.print(Lines.row("group", group, "topic", queue.getTopic(), "queue_id", queue.getQueueId(),
                        "broker_offset", number(one.getValue(), "getBrokerOffset"),
                        "consumer_offset", number(one.getValue(), "getConsumerOffset"),
                        "pull_offset", number(one.getValue(), "getPullOffset"),
                        "last_timestamp", number(one.getValue(), "getLastTimestamp")));
            }
        }
        admin.shutdown();
    }

    /** Asks one broker; 4.9 can only ask all brokers. The type of the answer has another package there. */
    private static Object stats(DefaultMQAdminExt admin, String broker, String group, String topic) throws Exception {
        Class<?> type = DefaultMQAdminExt.class;
        try {
            return type.getMethod("examineConsumeStats", String.class, String.class, String.class, long.class)
                    .invoke(admin, broker, group, topic, 10_000);
        } catch (NoSuchMethodException before5) {
            return type.getMethod("examineConsumeStats", String.class, String.class).invoke(admin, group, topic);
        }
    }

    private static Object number(Object wrapper, String getter) throws Exception {
        try {
            return wrapper.getClass().getMethod(getter).invoke(wrapper);
        } catch (NoSuchMethodException before5) {
            return null;
        }
    }
}
