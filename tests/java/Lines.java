import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.Message;

/**
 * JSON lines on standard output, one object a line, in ASCII only: what every program here answers with.
 *
 * <p>The two RocketMQ versions carry different JSON libraries, so the few lines that write it are here.
 */
final class Lines {
    private static final PrintStream OUT =
            new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.US_ASCII);

    private Lines() {}

    /** Makes an object from names and values in turn. */
    static Map<String, Object> row(Object... namesAndValues) {
        Map<String, Object> row = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            row.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return row;
    }

    /** Prints one object; threads may print at once. */
    static synchronized void print(Map<String, Object> row) {
        StringBuilder line = new StringBuilder();
        append(line, row);
        OUT.println(line);
        OUT.flush();
    }

    /** Returns the digest as lower-case hex. */
    static String sha256(byte[] bytes) throws Exception {
        StringBuilder hex = new StringBuilder();
        for (byte one : MessageDigest.getInstance("SHA-256").digest(bytes == null ? new byte[0] : bytes)) {
            hex.append(String.format("%02x", one));
        }
        return hex.toString();
    }

    /** Splits KEYS at single spaces, as the broker's index does; null where there is no such property. */
    static List<String> keys(Message message) {
        String joined = message.getKeys();
        if (joined == null) {
            return null;
        }
        List<String> keys = new ArrayList<>();
        for (String key : joined.split(" ")) {
            if (!key.isEmpty()) {
                keys.add(key);
            }
        }
        return keys;
    }

    /** Returns a message's properties in the order of their names. */
    static Map<String, Object> properties(Message message) {
        return message.getProperties() == null ? new TreeMap<>() : new TreeMap<>(message.getProperties());
    }

    private static void append(StringBuilder line, Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            line.append(value);
        } else if (value instanceof Map) {
            appendMembers(line, (Map<?, ?>) value);
        } else if (value instanceof List) {
            appendElements(line, (List<?>) value);
        } else {
            appendText(line, value.toString());
        }
    }

    private static void appendMembers(StringBuilder line, Map<?, ?> members) {
        String before = "{";
        for (Map.Entry<?, ?> member : members.entrySet()) {
            line.append(before);
            appendText(line, member.getKey().toString());
            append(line.append(": "), member.getValue());
            before = ", ";
        }
        line.append(members.isEmpty() ? "{}" : "}");
    }

    private static void appendElements(StringBuilder line, List<?> elements) {
        String before = "[";
        for (Object element : elements) {
            append(line.append(before), element);
            before = ", ";
        }
        line.append(elements.isEmpty() ? "[]" : "]");
    }

    private static void appendText(StringBuilder line, String text) {
        line.append('"');
        for (char unit : text.toCharArray()) {
            if (unit == '"' || unit == '\\') {
                line.append('\\').append(unit);
            } else if (unit < ' ' || unit > '~') {
                line.append(String.format("\\u%04x", (int) unit));
            } else {
                line.append(unit);
            }
        }
        line.append('"');
    }
}
