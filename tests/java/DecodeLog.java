import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Constructor;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Times RocketMQ's own ways through a log, in one thread. Needs RocketMQ 5 (it compiles with 4.9, too).
 *
 * <p>Arguments: the store's folder (the one that holds {@code commitlog}), an empty folder to work in. Then a line on
 * standard input for each pass, until it ends: {@code decode} is {@code MessageDecoder.decode} of every record, body and
 * CRC included; {@code check} is what a broker does with every record when it recovers,
 * {@code CommitLog.checkMessageAndReturnSize} with CRC, on a real CommitLog (of an empty store).
 *
 * <p>Output: an object a pass, {@code pass}, {@code seconds}, {@code bytes}, {@code messages}. The segments are mapped
 * once, as a broker has them. A segment's data end with a BLANK, with zeros, or with the file; anything else that is no
 * record ends the program with an error.
 */
public final class DecodeLog {
    private static final int BLANK_MAGIC = 0xCBD43194;
    private static final int MAGIC_OFFSET = 4;
    // A constant handle is compiled to a plain call; 4.9 has no such overload, and this source has to compile with it.
    private static final MethodHandle DECODE = findDecode();

    private final List<ByteBuffer> segments = new ArrayList<>();
    private final CommitLog commitLog;
    private long bytes;
    private long messages;

    private DecodeLog(File store, File work) throws Exception {
        File[] files = new File(store, "commitlog").listFiles(File::isFile);
        if (files == null) {
            throw new IllegalArgumentException(store + " has no commitlog folder");
        }
        Arrays.sort(files);
        for (File file : files) {
            try (FileChannel channel = FileChannel.open(file.toPath(), StandardOpenOption.READ)) {
                segments.add(channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size()));
            }
        }
        commitLog = emptyStore(work).getCommitLog();
    }

    public static void main(String[] arguments) throws Throwable {
        DecodeLog log = new DecodeLog(new File(arguments[0]), new File(arguments[1]));
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String pass = asked.readLine(); pass != null; pass = asked.readLine()) {
            log.time(pass);
        }
        // The store's services were never started, but some of their threads may wait.
        Runtime.getRuntime().halt(0);
    }

    private void time(String pass) throws Throwable {
        bytes = 0;
        messages = 0;
        long started = System.nanoTime();
        for (ByteBuffer segment : segments) {
            if (pass.equals("decode")) {
                decode(segment.duplicate());
            } else if (pass.equals("check")) {
                check(segment.duplicate());
            } else {
                throw new IllegalArgumentException("expected decode or check, found " + pass);
            }
        }
        double seconds = (System.nanoTime() - started) / 1e9;
        Lines.print(Lines.row("pass", pass, "seconds", seconds, "bytes", bytes, "messages", messages));
    }

    private void decode(ByteBuffer segment) throws Throwable {
        int position = 0;
        while (!isEnd(segment, position)) {
            int size = segment.getInt(position);
            segment.position(position);
            // readBody, deCompressBody, isClient, isSetPropertiesString, checkCRC
            MessageExt message = (MessageExt) DECODE.invokeExact(segment, true, false, false, false, true);
            if (message == null || message.getStoreSize() != size) {
                throw new IllegalStateException("the record at " + position + " does not decode");
            }
            position += size;
            messages++;
        }
        bytes += position;
    }

    private void check(ByteBuffer segment) {
        int position = 0;
        while (!isEnd(segment, position)) {
            segment.position(position);
            // checkCRC, checkDupInfo; the body is read
            DispatchRequest found = commitLog.checkMessageAndReturnSize(segment, true, false);
            if (!found.isSuccess() || found.getMsgSize() <= 0) {
                throw new IllegalStateException("the record at " + position + " is refused");
            }
            position += found.getMsgSize();
            messages++;
        }
        bytes += position;
    }

    private static boolean isEnd(ByteBuffer segment, int position) {
        if (segment.capacity() - position < 2 * Integer.BYTES) {
            return true;
        }
        int magic = segment.getInt(position + MAGIC_OFFSET);
        return magic == BLANK_MAGIC || magic == 0 && segment.getInt(position) == 0;
    }

    private static DefaultMessageStore emptyStore(File work) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(new File(work, "store").getPath());
        config.setStorePathCommitLog(new File(work, "store/commitlog").getPath());
        Constructor<?> made = DefaultMessageStore.class.getConstructors()[0];
        Object[] arguments = new Object[made.getParameterCount()];
        for (int i = 0; i < arguments.length; i++) {
            Class<?> type = made.getParameterTypes()[i];
            if (type == MessageStoreConfig.class) {
                arguments[i] = config;
            } else if (type == BrokerConfig.class) {
                arguments[i] = new BrokerConfig();
            } else if (type == ConcurrentMap.class) {
                arguments[i] = new ConcurrentHashMap<>();
            }
        }
        return (DefaultMessageStore) made.newInstance(arguments);
    }

    private static MethodHandle findDecode() {
        Class<?> flag = boolean.class;
        MethodType type = MethodType.methodType(MessageExt.class, ByteBuffer.class, flag, flag, flag, flag, flag);
        try {
            return MethodHandles.lookup().findStatic(MessageDecoder.class, "decode", type);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException("MessageDecoder.decode has no checkCRC before RocketMQ 5", error);
        }
    }
}
