import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Asks a name server and a broker what administrators ask.
 *
 * <p>Arguments: name server, broker address, topic that holds messages, group that has consumed it, tag of its first
 * message.
 *
 * <p>Output: an object for each question, with "asked" and what was answered.
 */
public final class Administration {
    public static void main(String[] arguments) {
        Clients.runAndExit(() -> run(arguments));
    }

    private static void run(String[] arguments) throws Exception {
        String broker = arguments[1];
        String topic = arguments[2];
        String group = arguments[3];
        DefaultMQAdminExt admin = Clients.quick(new DefaultMQAdminExt(10_000), arguments[0]);
        admin.start();
        Lines.print(Lines.row("asked", "clusters", "answer",
                String.valueOf(admin.examineBrokerClusterInfo().getClusterAddrTable())));
        Lines.print(Lines.row("asked", "topics", "answer",
                String.join(",", new TreeSet<>(admin.fetchAllTopicList().getTopicList()))));
        createTopic(admin, broker, "MadeByAdmin");
        Lines.print(Lines.row("asked", "made", "answer",
                String.valueOf(queues(admin, "MadeByAdmin"))));
        long messages = 0;
        for (Map.Entry<MessageQueue, ?> one : entries(admin.examineTopicStats(topic), "getOffsetTable")) {
            messages += number(one.getValue(), "getMaxOffset") - number(one.getValue(), "getMinOffset");
        }
        Lines.print(Lines.row("asked", "topic stats", "answer", messages));
        long lag = 0;
        long consumed = 0;
        for (Map.Entry<MessageQueue, ?> one : entries(admin.examineConsumeStats(group), "getOffsetTable")) {
            if (one.getKey().getTopic().equals(topic)) {
                lag += number(one.getValue(), "getBrokerOffset") - number(one.getValue(), "getConsumerOffset");
                consumed += number(one.getValue(), "getConsumerOffset");
            }
        }
        Lines.print(Lines.row("asked", "consume stats", "answer", consumed, "lag", lag));
        Map<String, String> runtime = admin.fetchBrokerRuntimeStats(broker).getTable();
        Lines.print(Lines.row("asked", "runtime", "answer", runtime.get("putMessageTimesTotal"),
                "tps", runtime.get("putTps"), "boot", runtime.get("bootTimestamp")));
        Lines.print(Lines.row("asked", "broker config", "answer",
                admin.getBrokerConfig(broker).getProperty("brokerName")));
        Lines.print(Lines.row("asked", "groups of topic", "answer",
                String.join(",", new TreeSet<>(admin.queryTopicConsumeByWho(topic).getGroupList()))));
        Lines.print(Lines.row("asked", "time span", "answer", admin.queryConsumeTimeSpan(topic, group).size()));
        Lines.print(Lines.row("asked", "group configs", "answer",
                admin.getAllSubscriptionGroup(broker, 5000).getSubscriptionGroupTable().containsKey(group)));
        Lines.print(Lines.row("asked", "offset by time", "answer",
                admin.searchOffset(new MessageQueue(topic, Clients.brokerName(admin(arguments)), 0), 0)));
        Lines.print(Lines.row("asked", "after reset", "answer", reset(admin, topic, group)));
        String code = "none";
        try {
            admin.examineConsumerConnectionInfo(group);
        } catch (Exception offline) {
            code = offline.getClass().getSimpleName();
        }
        Lines.print(Lines.row("asked", "connections", "answer", code));
        admin.createAndUpdateKvConfig("space", "key", "value");
        Lines.print(Lines.row("asked", "kv", "answer", admin.getKVConfig("space", "key")));
        Set<String> brokers = new HashSet<>();
        brokers.add(broker);
        admin.deleteTopicInBroker(brokers, "MadeByAdmin");
        Lines.print(Lines.row("asked", "deleted", "answer",
                admin.fetchAllTopicList().getTopicList().contains("MadeByAdmin")));
        admin.shutdown();
    }

    /** What a group that is not online has consumed once it was reset; a broker of 4.9 refuses that. */
    private static Object reset(DefaultMQAdminExt admin, String topic, String group) throws Exception {
        try {
            admin.resetOffsetByTimestamp(topic, group, 0, true);
        } catch (MQClientException refused) {
            return "refused with " + refused.getResponseCode();
        }
        long after = 0;
        for (Map.Entry<MessageQueue, ?> one : entries(admin.examineConsumeStats(group), "getOffsetTable")) {
            if (one.getKey().getTopic().equals(topic)) {
                after += number(one.getValue(), "getConsumerOffset");
            }
        }
        return after;
    }

    private static org.apache.rocketmq.client.producer.DefaultMQProducer admin(String[] arguments) throws Exception {
        return Clients.producer(arguments[0], "administration", "ZLIB", false);
    }

    /** Makes a topic with 3 queues; the type of the settings has another package in 4.9 than in 5. */
    private static void createTopic(DefaultMQAdminExt admin, String broker, String topic) throws Exception {
        for (java.lang.reflect.Method method : DefaultMQAdminExt.class.getMethods()) {
            Class<?>[] types = method.getParameterTypes();
            if (method.getName().equals("createAndUpdateTopicConfig") && types.length == 2) {
                Object config = types[1].getConstructor(String.class, int.class, int.class, int.class)
                        .newInstance(topic, 3, 3, 6);
                method.invoke(admin, broker, config);
                return;
            }
        }
        throw new IllegalStateException("no createAndUpdateTopicConfig");
    }

    private static int queues(DefaultMQAdminExt admin, String topic) throws Exception {
        Object route = DefaultMQAdminExt.class.getMethod("examineTopicRouteInfo", String.class).invoke(admin, topic);
        Object first = ((java.util.List<?>) route.getClass().getMethod("getQueueDatas").invoke(route)).get(0);
        return (int) number(first, "getWriteQueueNums");
    }

    @SuppressWarnings("unchecked")
    private static Set<Map.Entry<MessageQueue, ?>> entries(Object stats, String getter) throws Exception {
        Map<MessageQueue, ?> table = (Map<MessageQueue, ?>) stats.getClass().getMethod(getter).invoke(stats);
        return (Set<Map.Entry<MessageQueue, ?>>) (Set<?>) table.entrySet();
    }

    private static long number(Object holder, String getter) throws Exception {
        return ((Number) holder.getClass().getMethod(getter).invoke(holder)).longValue();
    }
}
