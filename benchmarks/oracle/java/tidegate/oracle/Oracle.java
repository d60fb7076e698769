package tidegate.oracle;

import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Runs the cases of a list, one after the other, each on a local cluster with one slot.
 *
 * <p>Arguments: the list, and the folder with flights.csv and weather.csv, in which the rows of a case go to
 * NAME.flink.jsonl. Says "done NAME SECONDS" behind each.
 */
public final class Oracle {

    private Oracle() {}

    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[1]);
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            Case asked = Case.parse(line);
            long begin = System.nanoTime();
            run(asked, folder);
            System.out.printf("done %s %.1f%n", asked.name(), (System.nanoTime() - begin) / 1e9);
        }
    }

    private static void run(Case asked, Path folder) throws Exception {
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(1);
        env.setRuntimeMode(RuntimeExecutionMode.STREAMING);
        Rows.write(rows(env, asked, new Inputs(env, folder, asked)), folder.resolve(asked.name() + ".flink.jsonl"));
        env.execute(asked.name());
    }

    private static DataStream<String> rows(StreamExecutionEnvironment env, Case asked, Inputs inputs)
            throws Exception {
        return switch (asked.text("program")) {
            case "windows" -> Windows.build(inputs, asked);
            case "count-windows" -> Windows.counted(inputs, asked);
            case "window-join" -> Joins.window(inputs, asked);
            case "interval-join" -> Joins.interval(inputs, asked);
            case "interval-join-sql" -> new SqlJoins(env, inputs, asked).interval();
            case "interval-join-late" -> Lockstep.interval(env, inputs, asked);
            case "temporal-join-late" -> LateTemporalJoin.build(env, inputs, asked);
            case "temporal-join" -> new SqlJoins(env, inputs, asked).temporal();
            case "rivals" -> Joins.rivals(inputs, asked);
            default -> throw new IllegalArgumentException("no program " + asked.text("program"));
        };
    }
}
