package tidegate.oracle;

import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.co.ProcessJoinFunction;
import org.apache.flink.streaming.api.operators.co.IntervalJoinOperator;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

/**
 * Joins of which records are late, made to depend on nothing but the records.
 *
 * <p>Flights and reports come from one file, in its order, with the same watermark behind each for both inputs. The
 * next line is not read before the join has seen all that came of the one before, so that it does not matter which of
 * its inputs the task reads first. The joins are Flink's own operators, which only count what they have seen.
 */
final class Lockstep {

    static final AtomicLong SENT = new AtomicLong();
    static final AtomicLong SEEN = new AtomicLong();

    private static final OutputTag<Flight> LATE_FLIGHTS = new OutputTag<>("late-flights") {};
    private static final OutputTag<Weather> LATE_WEATHER = new OutputTag<>("late-weather") {};

    private Lockstep() {}

    static void begin(StreamExecutionEnvironment env) {
        SENT.set(0);
        SEEN.set(0);
        env.setBufferTimeout(0);
    }

    /** Returns when the join has seen everything that was sent. */
    static void await() {
        while (SEEN.get() < SENT.get()) {
            LockSupport.parkNanos(1_000);
        }
    }

    static DataStream<String> interval(StreamExecutionEnvironment env, Inputs inputs, Case asked) throws Exception {
        begin(env);
        DataStream<Event> events = inputs.both();
        var config = env.getConfig().getSerializerConfig();
        SingleOutputStreamOperator<String> pairs =
                flights(events)
                        .keyBy(flight -> flight.origin)
                        .connect(weather(events).keyBy(weather -> weather.origin))
                        .transform(
                                "interval join",
                                Types.STRING,
                                new CountedIntervalJoin(
                                        asked,
                                        TypeInformation.of(Flight.class).createSerializer(config),
                                        TypeInformation.of(Weather.class).createSerializer(config)));
        DataStream<String> lateFlights =
                pairs.getSideOutput(LATE_FLIGHTS).map(flight -> Rows.json("late", flight.called(), flight.at));
        DataStream<String> lateWeather =
                pairs.getSideOutput(LATE_WEATHER).map(weather -> Rows.json("late", weather.origin, weather.at));
        return pairs.union(lateFlights, lateWeather);
    }

    static DataStream<Flight> flights(DataStream<Event> events) {
        return events.filter(event -> event.flight != null).map(event -> event.flight).returns(Flight.class);
    }

    static DataStream<Weather> weather(DataStream<Event> events) {
        return events.filter(event -> event.weather != null).map(event -> event.weather).returns(Weather.class);
    }

    /** A line of both.csv: one of the two. */
    public static class Event {
        public long at;
        public Flight flight;
        public Weather weather;

        static Event parse(String line) {
            Event event = new Event();
            String row = line.substring(line.indexOf(',') + 1);
            if (line.startsWith("flight,")) {
                event.flight = Flight.parse(row);
                event.at = event.flight.at;
            } else {
                event.weather = Weather.parse(row);
                event.at = event.weather.at;
            }
            return event;
        }
    }

    private static final class CountedIntervalJoin extends IntervalJoinOperator<String, Flight, Weather, String> {

        CountedIntervalJoin(
                Case asked,
                TypeSerializer<Flight> left,
                TypeSerializer<Weather> right) {
            super(
                    asked.duration("lower").toMillis(),
                    asked.duration("upper").toMillis(),
                    true,
                    true,
                    LATE_FLIGHTS,
                    LATE_WEATHER,
                    left,
                    right,
                    new ProcessJoinFunction<>() {
                        @Override
                        public void processElement(
                                Flight flight, Weather weather, Context context, Collector<String> out) {
                            out.collect(Joins.pair(flight, weather));
                        }
                    });
        }

        @Override
        public void processElement1(StreamRecord<Flight> record) throws Exception {
            super.processElement1(record);
            SEEN.incrementAndGet();
        }

        @Override
        public void processElement2(StreamRecord<Weather> record) throws Exception {
            super.processElement2(record);
            SEEN.incrementAndGet();
        }

        @Override
        public void processWatermark1(Watermark watermark) throws Exception {
            super.processWatermark1(watermark);
            SEEN.incrementAndGet();
        }

        @Override
        public void processWatermark2(Watermark watermark) throws Exception {
            super.processWatermark2(watermark);
            SEEN.incrementAndGet();
        }
    }
}
