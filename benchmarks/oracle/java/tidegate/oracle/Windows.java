package tidegate.oracle;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.flink.api.common.functions.ReduceFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.datastream.WindowedStream;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.WindowAssigner;
import org.apache.flink.streaming.api.windowing.triggers.CountTrigger;
import org.apache.flink.streaming.api.windowing.triggers.EventTimeTrigger;
import org.apache.flink.streaming.api.windowing.triggers.PurgingTrigger;
import org.apache.flink.streaming.api.windowing.triggers.Trigger;
import org.apache.flink.streaming.api.windowing.windows.GlobalWindow;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

/** Flights of each key in windows of event time: one row for each result of a window, one for each flight that was too late. */
final class Windows {

    private static final OutputTag<Flight> LATE = new OutputTag<>("late") {};

    private Windows() {}

    static DataStream<String> build(Inputs inputs, Case asked) throws Exception {
        String key = asked.text("key");
        WindowedStream<Flight, String, TimeWindow> windows =
                inputs.flights()
                        .keyBy(flight -> flight.key(key))
                        .window(assigner(asked))
                        .allowedLateness(asked.duration("lateness"))
                        .sideOutputLateData(LATE);
        if (asked.has("trigger")) {
            windows = windows.trigger(trigger(asked));
        }
        SingleOutputStreamOperator<String> results = made(windows, asked);
        DataStream<String> late =
                results.getSideOutput(LATE)
                        .map(flight -> Rows.json("late", flight.at, flight.called(), flight.key("route")));
        return Rows.withTimestamps(results.union(late));
    }

    /** Windows of so many flights of a key. Flink's first ones, when they slide, are not full: those are left out. */
    static DataStream<String> counted(Inputs inputs, Case asked) throws Exception {
        String key = asked.text("key");
        int size = asked.number("size");
        KeyedStream<Flight, String> flights = inputs.flights().keyBy(flight -> flight.key(key));
        WindowedStream<Flight, String, GlobalWindow> windows =
                asked.has("slide") ? flights.countWindow(size, asked.number("slide")) : flights.countWindow(size);
        return windows.process(new OfFull(size));
    }

    private static SingleOutputStreamOperator<String> made(
            WindowedStream<Flight, String, TimeWindow> windows, Case asked) {
        return switch (asked.text("form")) {
            case "aggregate" -> windows.aggregate(new Totals.OfFlights(), new OfTotals());
            case "reduce" -> windows.reduce((ReduceFunction<Flight>) Windows::later, new OfOne());
            case "process" -> windows.process(new OfAll(false));
            case "process-sorted" -> windows.process(new OfAll(true));
            default -> throw new IllegalArgumentException(asked.text("form"));
        };
    }

    static WindowAssigner<Object, TimeWindow> assigner(Case asked) {
        return switch (asked.text("windows")) {
            case "tumbling" -> TumblingEventTimeWindows.of(asked.duration("size"), asked.duration("offset"));
            case "sliding" ->
                    SlidingEventTimeWindows.of(
                            asked.duration("size"), asked.duration("slide"), asked.duration("offset"));
            case "session" -> EventTimeSessionWindows.withGap(asked.duration("gap"));
            default -> throw new IllegalArgumentException(asked.text("windows"));
        };
    }

    private static Trigger<Object, TimeWindow> trigger(Case asked) {
        return switch (asked.text("trigger")) {
            case "count" -> CountTrigger.of(asked.number("count"));
            case "purging-count" -> PurgingTrigger.of(CountTrigger.of(asked.number("count")));
            case "early-count" -> new EarlyByCount(asked.number("count"));
            case "purging-event-time" -> PurgingTrigger.of(EventTimeTrigger.create());
            default -> throw new IllegalArgumentException(asked.text("trigger"));
        };
    }

    /** The flight that left with the larger delay; of two with the same the first. */
    private static Flight later(Flight one, Flight other) {
        int first = one.delay == null ? Integer.MIN_VALUE : one.delay;
        int second = other.delay == null ? Integer.MIN_VALUE : other.delay;
        return second > first ? other : one;
    }

    private static final class OfTotals extends ProcessWindowFunction<Totals, String, String, TimeWindow> {
        @Override
        public void process(String key, Context context, Iterable<Totals> one, Collector<String> out) {
            Totals totals = one.iterator().next();
            TimeWindow window = context.window();
            out.collect(
                    Rows.json(
                            "window", key, window.getStart(), window.getEnd(), totals.flights, totals.cancelled,
                            totals.delay, totals.worst, totals.mean()));
        }
    }

    private static final class OfOne extends ProcessWindowFunction<Flight, String, String, TimeWindow> {
        @Override
        public void process(String key, Context context, Iterable<Flight> one, Collector<String> out) {
            Flight flight = one.iterator().next();
            TimeWindow window = context.window();
            out.collect(
                    Rows.json("window", key, window.getStart(), window.getEnd(), flight.called(), flight.at, flight.delay));
        }
    }

    private static final class OfAll extends ProcessWindowFunction<Flight, String, String, TimeWindow> {
        private final boolean isSorted;

        OfAll(boolean isSorted) {
            this.isSorted = isSorted;
        }

        @Override
        public void process(String key, Context context, Iterable<Flight> flights, Collector<String> out) {
            List<String> names = new ArrayList<>();
            flights.forEach(flight -> names.add(flight.called()));
            if (isSorted) {
                Collections.sort(names);
            }
            TimeWindow window = context.window();
            out.collect(Rows.json("window", key, window.getStart(), window.getEnd(), String.join(" ", names)));
        }
    }

    private static final class OfFull extends ProcessWindowFunction<Flight, String, String, GlobalWindow> {
        private final int size;

        OfFull(int size) {
            this.size = size;
        }

        @Override
        public void process(String key, Context context, Iterable<Flight> flights, Collector<String> out) {
            List<String> names = new ArrayList<>();
            flights.forEach(flight -> names.add(flight.called()));
            if (names.size() == size) {
                out.collect(Rows.json("window", key, String.join(" ", names)));
            }
        }
    }
}
