import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs commands of mqadmin, one after another, in one JVM: {@code Commands -- topicList -n ADDRESS -- clusterList ...}.
 *
 * <p>Prints, for each: command, output (what it printed to standard output and standard error).
 */
public final class Commands {
    private Commands() {}

    public static void main(String[] arguments) throws Exception {
        List<List<String>> commands = new ArrayList<>();
        for (String word : arguments) {
            if (word.equals("--")) {
                commands.add(new ArrayList<>());
            } else {
                commands.get(commands.size() - 1).add(word);
            }
        }
        for (List<String> command : commands) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream stream = new PrintStream(printed, true, "UTF-8");
            System.setOut(stream);
            System.setErr(stream);
            MQAdminStartup.main0(command.toArray(new String[0]), null);
            Lines.print(Lines.row("command", command.get(0), "output", printed.toString("UTF-8")));
        }
        System.exit(0);
    }
}
