import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The traces that a client owes: noted when it has done something, and waited for before it is shut down.
 *
 * <p>A client sends traces in the background, and gives them half a second when it is shut down, on a busy machine too.
 * A trace whose sending failed is lost, which ends the program with {@link #LOST}.
 */
final class Traces {
    /** The exit code of a program whose traces did not arrive; it may be run again. */
    static final int LOST = 75;

    private static final String TOPIC = "RMQ_SYS_TRACE_TOPIC";
    private static final String ENTRY_END = "\u0002";
    private static final String FIELD_END = "\u0001";

    private final String action;
    private final int keyField;
    private final List<String> owed = new CopyOnWriteArrayList<>();

    private Traces(String action, int keyField) {
        this.action = action;
        this.keyField = keyField;
    }

    /** Returns the traces of a producer: one for each message. */
    static Traces ofProducer() {
        return new Traces("Pub", 5);
    }

    /** Returns the traces of a consumer: one for each delivery that has ended. */
    static Traces ofConsumer() {
        return new Traces("SubAfter", 2);
    }

    /** Notes that the client owes one more trace of a message. */
    void owe(String uniqueKey) {
        owed.add(uniqueKey);
    }

    /** Waits until the broker holds the traces, and ends the program if they do not come. */
    void await(String nameServer, int seconds) throws Exception {
        if (owed.isEmpty()) {
            return;
        }
        DefaultMQPullConsumer puller = Clients.puller(nameServer, "trace-puller");
        // The topic has one queue.
        MessageQueue queue = new MessageQueue(TOPIC, Clients.brokerName(puller), 0);
        try {
            Clients.waitUntil("traces of " + owed, seconds, () -> arrived(puller, queue) >= owed.size());
        } catch (IllegalStateException lost) {
            lost.printStackTrace();
            System.exit(LOST);
        } finally {
            puller.shutdown();
        }
    }

    private long arrived(DefaultMQPullConsumer puller, MessageQueue queue) throws Exception {
        Set<String> keys = new HashSet<>(owed);
        Set<String> found = new HashSet<>();
        for (MessageExt message : Clients.pullAll(puller, queue)) {
            for (String entry : new String(message.getBody(), StandardCharsets.UTF_8).split(ENTRY_END)) {
                String[] fields = entry.split(FIELD_END);
                if (fields[0].equals(action) && keys.contains(fields[keyField])) {
                    // Entries of two deliveries of a message differ by the id of the request.
                    found.add(entry);
                }
            }
        }
        return found.size();
    }
}
