import java.util.Map;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Asks a running broker for messages by key and by id, and for offsets.
 *
 * <p>Arguments: name server, then questions of three words each:
 *
 * <pre>
 * key    TOPIC KEY              messages that have the key, through the broker's index
 * unique TOPIC UNIQ_KEY         the message of a client's id, through the index
 * id     TOPIC OFFSET_MSG_ID    the message at an offset message id
 * time   TOPIC QUEUE@TIMESTAMP  the first queue offset stored at or after a time (ms)
 * range  TOPIC -                the minimum and maximum offset of every queue
 * </pre>
 *
 * <p>Output: objects with the question (verb, topic, value) and what was found, a line a message or queue. A question
 * without an answer gives no line.
 */
public final class Lookup {
    private static final int MOST = 64;

    private final DefaultMQProducer client;

    private Lookup(DefaultMQProducer client) {
        this.client = client;
    }

    public static void main(String[] arguments) {
        Clients.runAndExit(() -> run(arguments));
    }

    private static void run(String[] arguments) throws Exception {
        Lookup lookup = new Lookup(Clients.producer(arguments[0], "lookup", "ZLIB", false));
        for (int i = 1; i < arguments.length; i += 3) {
            String topic = arguments[i + 1];
            Clients.waitUntil(
                    "route of " + topic, 30, () -> !lookup.client.fetchPublishMessageQueues(topic).isEmpty());
            lookup.answer(arguments[i], topic, arguments[i + 2]);
        }
        lookup.client.shutdown();
    }

    private void answer(String verb, String topic, String value) throws Exception {
        switch (verb) {
            case "key":
                byKey(topic, value);
                break;
            case "unique":
                MessageExt one = client.getDefaultMQProducerImpl().getMqClientFactory().getMQAdminImpl()
                        .queryMessageByUniqKey(topic, value);
                if (one != null) {
                    print(verb, topic, value, one);
                }
                break;
            case "id":
                print(verb, topic, value, client.viewMessage(topic, value));
                break;
            case "time":
                String[] at = value.split("@");
                long offset = client.searchOffset(queue(topic, Integer.parseInt(at[0])), Long.parseLong(at[1]));
                Lines.print(question(verb, topic, value, "queue_offset", offset));
                break;
            case "range":
                for (MessageQueue queue : client.fetchPublishMessageQueues(topic)) {
                    Lines.print(question(verb, topic, value, "queue_id", queue.getQueueId(),
                            "min_offset", client.minOffset(queue), "max_offset", client.maxOffset(queue)));
                }
                break;
            default:
                throw new IllegalArgumentException("read " + verb + ", expected key, unique, id, time or range");
        }
    }

    private void byKey(String topic, String key) throws Exception {
        try {
            for (MessageExt message : client.queryMessage(topic, key, MOST, 0, Long.MAX_VALUE).getMessageList()) {
                print("key", topic, key, message);
            }
        } catch (MQClientException nothing) {
            // The client tells "no message" by an exception without a code of its own; anything else is an error.
            if (!String.valueOf(nothing.getMessage()).contains("no message")) {
                throw nothing;
            }
        }
    }

    private MessageQueue queue(String topic, int queueId) throws Exception {
        for (MessageQueue queue : client.fetchPublishMessageQueues(topic)) {
            if (queue.getQueueId() == queueId) {
                return queue;
            }
        }
        throw new IllegalArgumentException(topic + " has no queue " + queueId);
    }

    private static void print(String verb, String topic, String value, MessageExt message) throws Exception {
        // Messages that are pulled or viewed by the client show the unique key as their id, and keep the other aside.
        String offsetId = message instanceof MessageClientExt
                ? ((MessageClientExt) message).getOffsetMsgId() : message.getMsgId();
        Lines.print(question(verb, topic, value,
                "queue_id", message.getQueueId(),
                "queue_offset", message.getQueueOffset(),
                "physical_offset", message.getCommitLogOffset(),
                "offset_msg_id", offsetId,
                "unique_key", message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX),
                "keys", Lines.keys(message),
                "tags", message.getTags(),
                "body_sha256", Lines.sha256(message.getBody())));
    }

    private static Map<String, Object> question(String verb, String topic, String value, Object... answer) {
        Map<String, Object> row = Lines.row("verb", verb, "topic", topic, "value", value);
        row.putAll(Lines.row(answer));
        return row;
    }
}
