package tidegate.oracle;

import org.apache.flink.api.common.functions.AbstractRichFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.runtime.generated.GeneratedJoinCondition;
import org.apache.flink.table.runtime.generated.JoinCondition;
import org.apache.flink.table.runtime.operators.join.temporal.TemporalRowTimeJoinOperator;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.BigIntType;
import org.apache.flink.table.types.logical.DoubleType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.VarCharType;
import org.apache.flink.types.RowKind;
import org.apache.flink.util.OutputTag;

/**
 * The operator behind Flink SQL's temporal join, in lockstep, with flights and reports that are late.
 *
 * <p>It has no notion of a late row: it joins one with what is left of the versions. Tidegate puts it aside. So it is
 * put aside here, too, before the operator sees it, unless the case asks for what Flink makes of it.
 */
final class LateTemporalJoin {

    private static final LogicalType TEXT = new VarCharType(VarCharType.MAX_LENGTH);
    private static final InternalTypeInfo<RowData> FLIGHT = InternalTypeInfo.ofFields(TEXT, new BigIntType(), TEXT);
    private static final InternalTypeInfo<RowData> REPORT =
            InternalTypeInfo.ofFields(new BigIntType(), TEXT, new DoubleType());
    private static final InternalTypeInfo<RowData> PAIR =
            InternalTypeInfo.ofFields(TEXT, new BigIntType(), TEXT, new BigIntType(), TEXT, new DoubleType());
    private static final OutputTag<RowData> LATE = new OutputTag<>("late", FLIGHT);

    private LateTemporalJoin() {}

    static DataStream<String> build(StreamExecutionEnvironment env, Inputs inputs, Case asked) throws Exception {
        Lockstep.begin(env);
        DataStream<Lockstep.Event> events = inputs.both();
        double calm = asked.has("deleted") ? asked.number("deleted") : Double.NEGATIVE_INFINITY;
        DataStream<RowData> flights = Lockstep.flights(events).map(LateTemporalJoin::row).returns(FLIGHT);
        DataStream<RowData> reports =
                Lockstep.weather(events).map(weather -> row(weather, calm)).returns(REPORT);
        SingleOutputStreamOperator<RowData> pairs =
                flights.keyBy(row -> row.getString(2).toString())
                        .connect(reports.keyBy(row -> row.getString(1).toString()))
                        .transform("temporal join", PAIR, new Counted(asked));
        DataStream<String> late =
                pairs.getSideOutput(LATE).map(row -> Rows.json("late", row.getString(0).toString(), row.getLong(1)));
        return pairs.map(LateTemporalJoin::told).returns(Types.STRING).union(late);
    }

    private static RowData row(Flight flight) {
        return GenericRowData.of(
                StringData.fromString(flight.called()), flight.at, StringData.fromString(flight.origin));
    }

    private static RowData row(Weather weather, double calm) {
        RowKind kind = weather.wind != null && weather.wind < calm ? RowKind.DELETE : RowKind.UPDATE_AFTER;
        return GenericRowData.ofKind(kind, weather.at, StringData.fromString(weather.origin), weather.temp);
    }

    private static String told(RowData row) {
        boolean isAlone = row.isNullAt(3);
        return Rows.json(
                "pair",
                row.getString(0).toString(),
                row.getLong(1),
                isAlone ? null : row.getLong(3),
                isAlone ? null : row.getString(4).toString(),
                isAlone || row.isNullAt(5) ? null : row.getDouble(5));
    }

    private static final class Counted extends TemporalRowTimeJoinOperator {
        private final boolean joinsLate;
        private long watermark = Long.MIN_VALUE;

        Counted(Case asked) {
            super(FLIGHT, REPORT, new Within(asked), 1, 0, 0, 0, asked.text("how").equals("left"));
            joinsLate = asked.text("late").equals("joined");
        }

        @Override
        public void processElement1(StreamRecord<RowData> record) throws Exception {
            if (!joinsLate && record.getTimestamp() <= watermark) {
                output.collect(LATE, record);
            } else {
                super.processElement1(record);
            }
            Lockstep.SEEN.incrementAndGet();
        }

        @Override
        public void processElement2(StreamRecord<RowData> record) throws Exception {
            super.processElement2(record);
            Lockstep.SEEN.incrementAndGet();
        }

        @Override
        public void processWatermark(Watermark combined) throws Exception {
            watermark = combined.getTimestamp();
            super.processWatermark(combined);
        }

        @Override
        public void processWatermark1(Watermark watermark) throws Exception {
            super.processWatermark1(watermark);
            Lockstep.SEEN.incrementAndGet();
        }

        @Override
        public void processWatermark2(Watermark watermark) throws Exception {
            super.processWatermark2(watermark);
            Lockstep.SEEN.incrementAndGet();
        }
    }

    /** What the planner would generate: the keys are equal, and a report may be too old. */
    private static final class Within extends GeneratedJoinCondition {
        private final long most;

        Within(Case asked) {
            super("Within", "", new Object[0], new Configuration());
            most = asked.has("within") ? asked.duration("within").toMillis() : Long.MAX_VALUE;
        }

        @Override
        public JoinCondition newInstance(ClassLoader loader) {
            return new Condition(most);
        }
    }

    private static final class Condition extends AbstractRichFunction implements JoinCondition {
        private final long most;

        Condition(long most) {
            this.most = most;
        }

        @Override
        public void open(OpenContext context) {}

        @Override
        public boolean apply(RowData flight, RowData report) {
            return flight.getLong(1) - report.getLong(0) <= most;
        }
    }
}
