import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageBatch;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageConst;

/**
 * Sends messages of every kind through the real client, and waits until the broker has delivered what it owes: delayed
 * messages, timers, transactions, traces.
 *
 * <p>Arguments: name server, then the kinds wanted, in any number; none for all that this version of RocketMQ has. The
 * broker should have short delay levels with a long last one, short transaction times and transactionCheckMax=3.
 *
 * <p>Output: one object a message sent: kind, topic, queue_id, queue_offset, unique_key, offset_msg_id, keys, tags,
 * properties, body_size and body_sha256 of the body before compression. Ids and offsets are null where the broker
 * answered none (one-way), or the client (the replies of request).
 */
public final class ProduceEveryKind {
    /** 127 characters, the longest name a producer may use. */
    private static final String LONG_TOPIC = "EveryLongTopic_" + "t".repeat(112);

    private static final int DELIVERY_LIMIT_SECONDS = 90;
    /** The broker takes it for its last level. */
    private static final int LAST_DELAY_LEVEL = 18;

    private final String nameServer;
    private final DefaultMQProducer producer;
    private final Clients.Arrivals arrivals;
    private final List<AutoCloseable> closing = new ArrayList<>();
    private final Random random = new Random(4711);

    /** A kind of message: how it is sent. */
    private interface Kind {
        void send() throws Exception;
    }

    private ProduceEveryKind(String nameServer) throws Exception {
        this.nameServer = nameServer;
        this.producer = Clients.producer(nameServer, "every-kind", "ZLIB", false);
        this.arrivals = new Clients.Arrivals(producer);
    }

    public static void main(String[] arguments) {
        Clients.runAndExit(() -> run(arguments));
    }

    private static void run(String[] arguments) throws Exception {
        ProduceEveryKind program = new ProduceEveryKind(arguments[0]);
        Map<String, Kind> kinds = program.kinds();
        if (arguments.length > 1) {
            kinds.keySet().retainAll(Arrays.asList(arguments).subList(1, arguments.length));
        }
        for (Kind kind : kinds.values()) {
            kind.send();
        }
        program.arrivals.waitForAll(DELIVERY_LIMIT_SECONDS);
        for (AutoCloseable open : program.closing) {
            open.close();
        }
    }

    /** Lists the kinds in the order of sending: those that take the broker longest come first. */
    private Map<String, Kind> kinds() {
        Map<String, Kind> kinds = new LinkedHashMap<>();
        kinds.put("transaction", () -> closing.add(ProduceTransactions.send(nameServer, arrivals)));
        kinds.put("delay", this::delay);
        kinds.put("timer", this::timer);
        kinds.put("plain", this::plain);
        kinds.put("tags", this::tags);
        kinds.put("keys", this::keys);
        kinds.put("properties", this::properties);
        kinds.put("batch", this::batch);
        kinds.put("zlib", () -> compressed("ZLIB"));
        kinds.put("lz4", () -> compressed("LZ4"));
        kinds.put("zstd", () -> compressed("ZSTD"));
        kinds.put("big", this::big);
        kinds.put("oneway", this::oneway);
        kinds.put("ordered", this::ordered);
        kinds.put("long_topic", this::longTopic);
        kinds.put("failing", this::failing);
        kinds.put("traced", this::traced);
        kinds.put("request", this::request);
        kinds.put("volume", this::volume);
        kinds.put("pending", () -> closing.add(ProduceTransactions.sendPending(nameServer)));
        if (Arrays.stream(Message.class.getMethods()).noneMatch(one -> one.getName().equals("setDelayTimeMs"))) {
            // 4.9.x has no timers: it would deliver such a message at once.
            kinds.remove("timer");
        }
        return kinds;
    }

    private void plain() throws Exception {
        for (int i = 0; i < 20; i++) {
            send("plain", new Message("EveryPlain", text("plain", i)));
        }
    }

    private void tags() throws Exception {
        // The last has the hash code -2^31.
        String[] tags = {"TagA", "TagB", "TagNeg", "订单", "😀", "TagA || TagB", "polygenelubricants"};
        for (String tag : tags) {
            send("tags", new Message("EveryTagged", tag, text(tag, 0)));
        }
    }

    private void keys() throws Exception {
        for (String keys : new String[] {"order-1", "order-1 user-9 订单-1", "two  spaces", "order-1 order-1"}) {
            send("keys", new Message("EveryKeyed", "Paid", keys, text(keys, 0)));
        }
    }

    private void properties() throws Exception {
        Message message = new Message("EveryProperties", "TagA", "order-2", 7, text("properties", 0), false);
        message.putUserProperty("region", "eu-central");
        message.putUserProperty("城市", "北京市");
        message.putUserProperty("emoji🚀", "😀 and text");
        message.putUserProperty("signs", "a=b; \"c\" \\ 'd'\n\t{}");
        message.putUserProperty("spaces", "  two before, one after ");
        message.putUserProperty("large", "v".repeat(20_000));
        message.setBuyerId("buyer-1");
        send("properties", message);
    }

    private void batch() throws Exception {
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            batch.add(new Message("EveryBatch", "TagB", "batch-" + i, text("batch", i)));
        }
        sentBatch(batch, producer.send(batch));
        // The client refuses an empty body, in a batch too; only the broker takes it there. So encode it ourselves.
        MessageBatch whole = MessageBatch.generateFromList(Arrays.asList(
                new Message("EveryBatch", "TagB", "batch-before", text("before", 0)),
                new Message("EveryBatch", "TagB", "batch-empty", new byte[0]),
                new Message("EveryBatch", "TagB", "batch-after", text("after", 0))));
        List<Message> withEmpty = new ArrayList<>();
        for (Message message : whole) {
            MessageClientIDSetter.setUniqID(message);
            withEmpty.add(message);
        }
        MessageClientIDSetter.setUniqID(whole);
        whole.setBody(whole.encode());
        sentBatch(withEmpty, producer.getDefaultMQProducerImpl().send(whole));
    }

    private void compressed(String codec) throws Exception {
        DefaultMQProducer compressing = Clients.producer(nameServer, "every-" + codec, codec, false);
        String kind = codec.toLowerCase();
        for (int i = 0; i < 2; i++) {
            String text = new String(text(codec, i), StandardCharsets.UTF_8);
            byte[] body = text.repeat(300).getBytes(StandardCharsets.UTF_8);
            Message message = new Message("EveryCompressed", codec, codec + "-" + i, body);
            sent(kind, message, body, compressing.send(message));
        }
        compressing.shutdown();
    }

    private void big() throws Exception {
        byte[] body = incompressible(200_000);
        Message compressedInVain = new Message("EveryBig", "Compressed", "big-compressed", body);
        sent("big", compressedInVain, body, producer.send(compressedInVain));
        DefaultMQProducer plain = Clients.producer(nameServer, "every-big", "ZLIB", false);
        plain.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        for (int i = 0; i < 6; i++) {
            Message message = new Message("EveryBig", "Plain", "big-" + i, incompressible(300_000));
            sent("big", message, message.getBody(), plain.send(message));
        }
        plain.shutdown();
    }

    private void delay() throws Exception {
        arrivals.promise("EveryDelay", 4);
        for (int level : new int[] {1, 1, 2, 3, LAST_DELAY_LEVEL}) {
            Message message = new Message("EveryDelay", "Level" + level, "delay-" + level, text("delay", level));
            message.setDelayTimeLevel(level);
            send(level == LAST_DELAY_LEVEL ? "delay_waiting" : "delay", message);
        }
    }

    private void timer() throws Exception {
        arrivals.promise("EveryTimer", 3);
        long now = System.currentTimeMillis();
        String[][] wanted = {
            {"timer", "TIMER_DELAY_SEC", "2"},
            {"timer", "TIMER_DELAY_MS", "2500"},
            {"timer", "TIMER_DELIVER_MS", String.valueOf(now + 3500)},
            {"timer_waiting", "TIMER_DELIVER_MS", String.valueOf(now + 86_400_000)},
        };
        for (String[] one : wanted) {
            Message message = new Message("EveryTimer", one[1], "timer-" + one[1], text("timer", 0));
            // Message.setDelayTimeSec and its like do no more; 4.9.x does not have them.
            MessageAccessor.putProperty(message, one[1], one[2]);
            send(one[0], message);
        }
    }

    private void oneway() throws Exception {
        arrivals.promise("EveryOneway", 3);
        for (int i = 0; i < 3; i++) {
            Message message = new Message("EveryOneway", "TagA", "oneway-" + i, text("oneway", i));
            producer.sendOneway(message);
            sent("oneway", message, message.getBody(), null);
        }
    }

    private void ordered() throws Exception {
        for (int i = 0; i < 10; i++) {
            Message message = new Message("EveryOrdered", "Step" + i, "ordered-1", text("ordered", i));
            message.putUserProperty("__SHARDINGKEY", "ordered-1");
            SendResult result = producer.send(message, (queues, sent, queueId) -> queues.get((Integer) queueId), 2);
            sent("ordered", message, message.getBody(), result);
        }
    }

    private void longTopic() throws Exception {
        send("long_topic", new Message(LONG_TOPIC, "TagA", "long-topic", text("long", 0)));
    }

    private void failing() throws Exception {
        for (int i = 0; i < 3; i++) {
            send("failing", new Message("EveryFailing", "Refused", "failing-" + i, text("failing", i)));
        }
    }

    private void traced() throws Exception {
        Traces traces = Traces.ofProducer();
        DefaultMQProducer tracing = Clients.producer(nameServer, "every-traced", "ZLIB", true);
        for (int i = 0; i < 3; i++) {
            Message message = new Message("EveryTraced", "TagA", "traced-" + i, text("traced", i));
            SendResult result = tracing.send(message);
            sent("traced", message, message.getBody(), result);
            traces.owe(result.getMsgId());
            // One by one, so that each has a trace message of its own.
            traces.await(nameServer, 60);
        }
        tracing.shutdown();
    }

    /** A request waits for the reply of a consumer, which comes through the broker as a message too. */
    private void request() throws Exception {
        send("request", new Message("EveryRequest", "First", "request-first", text("makes the topic", 0)));
        DefaultMQPushConsumer replying = Clients.quick(new DefaultMQPushConsumer("every-replying"), nameServer);
        replying.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        replying.subscribe("EveryRequest", "Asking");
        CountDownLatch replied = new CountDownLatch(1);
        replying.registerMessageListener((MessageListenerConcurrently) (asked, context) -> {
            try {
                producer.send(MessageUtil.createReplyMessage(asked.get(0), "yes".getBytes(StandardCharsets.UTF_8)));
                replied.countDown();
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            } catch (Exception failed) {
                throw new IllegalStateException(failed);
            }
        });
        replying.start();
        // The broker pushes a reply to a producer that it has heard of.
        producer.getDefaultMQProducerImpl().getMqClientFactory().sendHeartbeatToAllBrokerWithLock();
        Message message = new Message("EveryRequest", "Asking", "request-1", text("request", 0));
        producer.request(message, 30_000);
        sent("request", message, message.getBody(), null);
        Clients.waitUntil("reply", 30, () -> replied.getCount() == 0);
        replying.shutdown();
    }

    private void volume() throws Exception {
        for (int i = 0; i < 1500; i++) {
            byte[] body = incompressible(100 + random.nextInt(700));
            send("volume", new Message("EveryVolume", "Tag" + i % 7, "volume-" + i + " user-" + i % 50, body));
        }
    }

    private void send(String kind, Message message) throws Exception {
        byte[] body = message.getBody();
        sent(kind, message, body, producer.send(message));
    }

    private static void sentBatch(List<Message> batch, SendResult result) throws Exception {
        String[] offsetIds = result.getOffsetMsgId().split(",");
        for (int i = 0; i < batch.size(); i++) {
            Map<String, Object> row = describe("batch", batch.get(i), batch.get(i).getBody(), result);
            row.put("queue_offset", result.getQueueOffset() + i);
            row.put("offset_msg_id", offsetIds[i]);
            Lines.print(row);
        }
    }

    /** Prints what was sent; the client has replaced the message's own body if it compressed it. */
    static void sent(String kind, Message message, byte[] body, SendResult result) throws Exception {
        Lines.print(describe(kind, message, body, result));
    }

    private static Map<String, Object> describe(String kind, Message message, byte[] body, SendResult result)
            throws Exception {
        return Lines.row(
                "kind", kind,
                "topic", message.getTopic(),
                "queue_id", result == null ? null : result.getMessageQueue().getQueueId(),
                "queue_offset", result == null ? null : result.getQueueOffset(),
                "unique_key", message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX),
                "offset_msg_id", result == null ? null : result.getOffsetMsgId(),
                "keys", Lines.keys(message),
                "tags", message.getTags(),
                "flag", message.getFlag(),
                "properties", Lines.properties(message),
                "body_size", body.length,
                "body_sha256", Lines.sha256(body));
    }

    static byte[] text(String what, int number) {
        return ("{\"what\": \"" + what + "\", \"number\": " + number + ", \"名\": \"消息\"}")
                .getBytes(StandardCharsets.UTF_8);
    }

    private byte[] incompressible(int size) {
        byte[] body = new byte[size];
        random.nextBytes(body);
        return body;
    }
}
