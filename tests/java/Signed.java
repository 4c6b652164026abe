import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends a message and pulls it, with every request signed.
 *
 * <p>Arguments: name server, topic, access key, secret key.
 *
 * <p>Output: an object with the message that came back, or with the code of the refusal.
 */
public final class Signed {
    public static void main(String[] arguments) {
        Clients.runAndExit(() -> run(arguments));
    }

    private static void run(String[] arguments) throws Exception {
        AclClientRPCHook hook = new AclClientRPCHook(new SessionCredentials(arguments[2], arguments[3]));
        DefaultMQProducer producer = Clients.quick(new DefaultMQProducer("signed", hook), arguments[0]);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(20_000);
        producer.start();
        try {
            SendResult sent = producer.send(new Message(arguments[1], "Tag", "key of 1", "body".getBytes()));
            Lines.print(Lines.row("event", "sent", "unique_key", sent.getMsgId()));
        } catch (MQClientException refused) {
            Lines.print(Lines.row("event", "refused", "code", refused.getResponseCode()));
            producer.shutdown();
            return;
        }
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("signed-reader", hook);
        Clients.quick(consumer, arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments[1], "Tag");
        consumer.start();
        long deadline = System.currentTimeMillis() + 60_000;
        while (System.currentTimeMillis() < deadline) {
            for (MessageExt message : consumer.poll(500)) {
                Lines.print(Lines.row("event", "read", "unique_key", message.getMsgId()));
                consumer.shutdown();
                producer.shutdown();
                return;
            }
        }
        throw new IllegalStateException("nothing came within a minute");
    }
}
