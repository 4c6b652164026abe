import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends as fast as the broker takes it.
 *
 * <p>Arguments: name server, topic, way (sync, async, batch), number of messages, bytes of a body, threads.
 *
 * <p>Output: one object with the messages that were acknowledged, those that were not, the seconds that it took, and the
 * latencies of sends (in a batch: of batches) at 50, 99 and 99.9 percent, in ms. A warm-up of a tenth is not counted.
 */
public final class SendLoad {
    private static final int IN_FLIGHT = 1000;
    private static final int BATCH = 32;

    public static void main(String[] arguments) {
        Clients.runAndExit(() -> run(arguments));
    }

    private static void run(String[] arguments) throws Exception {
        DefaultMQProducer producer = Clients.producer(arguments[0], "load", "ZLIB", false);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.setRetryTimesWhenSendFailed(0);
        int messages = Integer.parseInt(arguments[3]);
        int size = Integer.parseInt(arguments[4]);
        int threads = Integer.parseInt(arguments[5]);
        producer.send(new Message(arguments[1], new byte[size]));
        load(producer, arguments[1], arguments[2], messages / 10, size, threads);
        Lines.print(load(producer, arguments[1], arguments[2], messages, size, threads).row(arguments[2]));
        producer.shutdown();
    }

    private static Result load(
            DefaultMQProducer producer, String topic, String way, int messages, int size, int threads)
            throws Exception {
        Result result = new Result(messages);
        byte[] body = new byte[size];
        Arrays.fill(body, (byte) 'x');
        long start = System.nanoTime();
        switch (way) {
            case "sync":
                sync(producer, topic, body, messages, threads, result);
                break;
            case "async":
                async(producer, topic, body, messages, result);
                break;
            case "batch":
                batch(producer, topic, body, messages, result);
                break;
            default:
                throw new IllegalArgumentException("read " + way + ", expected sync, async or batch");
        }
        result.nanos = System.nanoTime() - start;
        return result;
    }

    private static void sync(
            DefaultMQProducer producer, String topic, byte[] body, int messages, int threads, Result result)
            throws Exception {
        AtomicInteger left = new AtomicInteger(messages);
        List<Thread> running = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            Thread thread = new Thread(() -> {
                while (left.getAndDecrement() > 0) {
                    long begin = System.nanoTime();
                    try {
                        producer.send(new Message(topic, body));
                        result.took(begin, 1);
                    } catch (Exception failure) {
                        result.failed.incrementAndGet();
                    }
                }
            });
            thread.start();
            running.add(thread);
        }
        for (Thread thread : running) {
            thread.join();
        }
    }

    private static void async(DefaultMQProducer producer, String topic, byte[] body, int messages, Result result)
            throws Exception {
        Semaphore inFlight = new Semaphore(IN_FLIGHT);
        for (int i = 0; i < messages; i++) {
            inFlight.acquire();
            long begin = System.nanoTime();
            producer.send(new Message(topic, body), new SendCallback() {
                @Override
                public void onSuccess(SendResult sent) {
                    result.took(begin, 1);
                    inFlight.release();
                }

                @Override
                public void onException(Throwable failure) {
                    result.failed.incrementAndGet();
                    inFlight.release();
                }
            });
        }
        inFlight.acquire(IN_FLIGHT);
    }

    private static void batch(DefaultMQProducer producer, String topic, byte[] body, int messages, Result result)
            throws Exception {
        for (int i = 0; i < messages; i += BATCH) {
            List<Message> batch = new ArrayList<>();
            for (int j = 0; j < BATCH; j++) {
                batch.add(new Message(topic, body));
            }
            long begin = System.nanoTime();
            producer.send(batch);
            result.took(begin, BATCH);
        }
    }

    private static final class Result {
        private final long[] latencies;
        private final AtomicInteger count = new AtomicInteger();
        private final AtomicInteger failed = new AtomicInteger();
        private final AtomicLong messages = new AtomicLong();
        private long nanos;

        Result(int most) {
            latencies = new long[most + 1];
        }

        void took(long begin, int sent) {
            latencies[Math.min(count.getAndIncrement(), latencies.length - 1)] = System.nanoTime() - begin;
            messages.addAndGet(sent);
        }

        java.util.Map<String, Object> row(String way) {
            long[] sorted = Arrays.copyOf(latencies, Math.min(count.get(), latencies.length));
            Arrays.sort(sorted);
            return Lines.row(
                    "way", way,
                    "acknowledged", messages.get(),
                    "failed", failed.get(),
                    "ms", nanos / 1_000_000,
                    "p50_us", sorted[sorted.length / 2] / 1000,
                    "p99_us", sorted[(int) (sorted.length * 0.99)] / 1000,
                    "p999_us", sorted[(int) (sorted.length * 0.999)] / 1000);
        }
    }
}
