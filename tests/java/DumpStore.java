import com.google.common.net.InetAddresses;
import java.io.File;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Prints what RocketMQ's own MessageDecoder says of every record of a store. Needs no broker.
 *
 * <p>Arguments: the store's folder (the one that holds {@code commitlog}).
 *
 * <p>Output: one object a record, in physical order, with CommitLake's column names. Bodies are not decompressed: size,
 * CRC and digest are those of the stored bytes. The end of a segment's data is zeros, a BLANK record or the file's end;
 * anything else that does not decode ends the program with an error, after the records before it.
 */
public final class DumpStore {
    private static final int BLANK_MAGIC = 0xCBD43194;
    private static final int MAGIC_OFFSET = 4;

    public static void main(String[] arguments) throws Exception {
        File[] segments = new File(arguments[0], "commitlog").listFiles(File::isFile);
        if (segments == null) {
            throw new IllegalArgumentException(arguments[0] + " has no commitlog folder");
        }
        Arrays.sort(segments);
        for (File segment : segments) {
            dump(segment);
        }
    }

    private static void dump(File segment) throws Exception {
        try (FileChannel channel = FileChannel.open(segment.toPath(), StandardOpenOption.READ)) {
            ByteBuffer bytes = channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size());
            int position = 0;
            while (bytes.capacity() - position >= 8) {
                int size = bytes.getInt(position);
                int magic = bytes.getInt(position + MAGIC_OFFSET);
                if (size == 0 && magic == 0 || magic == BLANK_MAGIC) {
                    return;
                }
                bytes.position(position);
                MessageExt message = MessageDecoder.decode(bytes, true, false);
                if (message == null || UtilAll.crc32(message.getBody()) != message.getBodyCRC()) {
                    String what = message == null ? "does not decode" : "has a body of another CRC";
                    throw new IllegalStateException(segment + ": the record at " + position + " " + what);
                }
                print(segment.getName(), magic, message);
                position += size;
            }
        }
    }

    private static void print(String segment, int magic, MessageExt message) throws Exception {
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        Lines.print(Lines.row(
                "segment", segment,
                "physical_offset", message.getCommitLogOffset(),
                "size", message.getStoreSize(),
                "magic", magic,
                "topic", message.getTopic(),
                "queue_id", message.getQueueId(),
                "queue_offset", message.getQueueOffset(),
                "msg_id", message.getMsgId(),
                "unique_key", message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX),
                "tags", message.getTags(),
                "keys", Lines.keys(message),
                "born_timestamp", message.getBornTimestamp(),
                "store_timestamp", message.getStoreTimestamp(),
                "born_host", host((InetSocketAddress) message.getBornHost()),
                "store_host", host((InetSocketAddress) message.getStoreHost()),
                "sys_flag", message.getSysFlag(),
                "flag", message.getFlag(),
                "reconsume_times", message.getReconsumeTimes(),
                "prepared_transaction_offset", message.getPreparedTransactionOffset(),
                "body_size", body.length,
                "body_crc", message.getBodyCRC(),
                "body_sha256", Lines.sha256(body),
                "properties", Lines.properties(message)));
    }

    /** Writes {@code ip:port}; IPv6 in brackets and in its short form, which Java itself does not use. */
    private static String host(InetSocketAddress address) {
        return InetAddresses.toUriString(address.getAddress()) + ":" + address.getPort();
    }
}
