package tidegate.oracle;

import java.time.Duration;
import java.util.stream.IntStream;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;

/** Joins that only Flink SQL has: interval joins that keep what has no match, and temporal joins. */
final class SqlJoins {

    private static final String PAIR =
            "SELECT f.carrier || CAST(f.flight AS STRING), f.`at`, w.`at`, w.origin, w.temp FROM flights AS f ";

    private final StreamTableEnvironment tables;
    private final Inputs inputs;
    private final Case asked;

    SqlJoins(StreamExecutionEnvironment env, Inputs inputs, Case asked) {
        this.tables = StreamTableEnvironment.create(env);
        this.inputs = inputs;
        this.asked = asked;
        tables.getConfig().set("table.local-time-zone", "UTC");
    }

    DataStream<String> interval() throws Exception {
        tables.createTemporaryView("flights", inputs.flights(), timed().build());
        tables.createTemporaryView("weather", inputs.weather(), timed().build());
        return pairs(
                "%s %s JOIN weather AS w ON f.origin = w.origin AND w.ts BETWEEN f.ts %s AND f.ts %s"
                        .formatted(PAIR, asked.text("how"), plus("lower"), plus("upper")));
    }

    DataStream<String> temporal() throws Exception {
        tables.createTemporaryView("flights", inputs.flights(), timed().build());
        tables.createTemporaryView(
                "weather",
                tables.fromChangelogStream(
                        changes(), timed().primaryKey("origin").build(), ChangelogMode.all()));
        String condition = "";
        if (asked.has("within")) {
            // A condition on the version itself is one of the join: it decides whether there is a match.
            condition = " AND w.`at` >= f.`at` - " + asked.duration("within").toMillis();
        }
        return pairs(
                "%s %s JOIN weather FOR SYSTEM_TIME AS OF f.ts AS w ON f.origin = w.origin%s"
                        .formatted(PAIR, asked.text("how"), condition));
    }

    /** The reports as versions of their airport. Some are corrected at once, some end what was known before. */
    private DataStream<Row> changes() throws Exception {
        int corrected = asked.has("corrected") ? asked.number("corrected") : 0;
        double calm = asked.has("deleted") ? asked.number("deleted") : Double.NEGATIVE_INFINITY;
        String[] names = {"at", "origin", "temp", "wind"};
        return inputs.weather()
                .<Row>flatMap(
                        (weather, out) -> {
                            boolean ends = weather.wind != null && weather.wind < calm;
                            RowKind kind = ends ? RowKind.DELETE : RowKind.UPDATE_AFTER;
                            out.collect(Row.ofKind(kind, weather.at, weather.origin, weather.temp, weather.wind));
                            if (corrected > 0 && !ends && Math.floorMod(Math.floorDiv(weather.at, 3_600_000L), corrected) == 0) {
                                Double temp = weather.temp == null ? null : Double.valueOf(weather.temp + 1);
                                out.collect(Row.ofKind(kind, weather.at, weather.origin, temp, weather.wind));
                            }
                        })
                .returns(Types.ROW_NAMED(names, Types.LONG, Types.STRING, Types.DOUBLE, Types.DOUBLE));
    }

    /** The columns of the stream, and its event time. */
    private static Schema.Builder timed() {
        return Schema.newBuilder()
                .columnByMetadata("ts", DataTypes.TIMESTAMP_LTZ(3), "rowtime")
                .watermark("ts", "SOURCE_WATERMARK()");
    }

    private DataStream<String> pairs(String query) {
        return tables.toDataStream(tables.sqlQuery(query)).map(SqlJoins::told).returns(Types.STRING);
    }

    private static String told(Row row) {
        Object[] values = IntStream.range(-1, row.getArity()).mapToObj(i -> i < 0 ? "pair" : row.getField(i)).toArray();
        return Rows.json(values);
    }

    private String plus(String parameter) {
        Duration duration = asked.duration(parameter);
        String sign = duration.isNegative() ? "-" : "+";
        return "%s INTERVAL '%d' MINUTE".formatted(sign, duration.abs().toMinutes());
    }
}
