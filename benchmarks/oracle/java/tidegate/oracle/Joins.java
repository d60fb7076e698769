package tidegate.oracle;

import org.apache.flink.api.common.functions.CoGroupFunction;
import org.apache.flink.api.common.functions.JoinFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.functions.co.ProcessJoinFunction;
import org.apache.flink.util.Collector;

/** Joins that Flink's DataStream API has. */
final class Joins {

    private Joins() {}

    /** Each flight with the reports of its airport that are near to it in time. */
    static DataStream<String> interval(Inputs inputs, Case asked) throws Exception {
        DataStream<String> pairs =
                inputs.flights()
                        .keyBy(flight -> flight.origin)
                        .intervalJoin(inputs.weather().keyBy(weather -> weather.origin))
                        .between(asked.duration("lower"), asked.duration("upper"))
                        .process(
                                new ProcessJoinFunction<Flight, Weather, String>() {
                                    @Override
                                    public void processElement(
                                            Flight flight, Weather weather, Context context, Collector<String> out) {
                                        out.collect(pair(flight, weather));
                                    }
                                });
        return Rows.withTimestamps(pairs);
    }

    /** Flights of two airports to the same destination that leave at about the same time. */
    static DataStream<String> rivals(Inputs inputs, Case asked) throws Exception {
        DataStream<Flight> flights = inputs.flights();
        String left = asked.text("left");
        String right = asked.text("right");
        DataStream<String> pairs =
                flights.filter(flight -> flight.origin.equals(left))
                        .keyBy(flight -> flight.dest)
                        .intervalJoin(
                                flights.filter(flight -> flight.origin.equals(right)).keyBy(flight -> flight.dest))
                        .between(asked.duration("lower"), asked.duration("upper"))
                        .process(
                                new ProcessJoinFunction<Flight, Flight, String>() {
                                    @Override
                                    public void processElement(
                                            Flight one, Flight other, Context context, Collector<String> out) {
                                        out.collect(
                                                Rows.json("pair", one.dest, one.called(), one.at, other.called(), other.at));
                                    }
                                });
        return Rows.withTimestamps(pairs);
    }

    /** Flights and reports of the same airport and window. */
    static DataStream<String> window(Inputs inputs, Case asked) throws Exception {
        String how = asked.text("how");
        if (how.equals("inner")) {
            return Rows.withTimestamps(
                    inputs.flights()
                            .join(inputs.weather())
                            .where(flight -> flight.origin)
                            .equalTo(weather -> weather.origin)
                            .window(Windows.assigner(asked))
                            .apply((JoinFunction<Flight, Weather, String>) Joins::pair));
        }
        return Rows.withTimestamps(
                inputs.flights()
                        .coGroup(inputs.weather())
                        .where(flight -> flight.origin)
                        .equalTo(weather -> weather.origin)
                        .window(Windows.assigner(asked))
                        .apply(new Outer(how)));
    }

    static String pair(Flight flight, Weather weather) {
        return Rows.json(
                "pair",
                flight == null ? null : flight.called(),
                flight == null ? null : flight.at,
                weather == null ? null : weather.at,
                weather == null ? null : weather.origin,
                weather == null ? null : weather.temp);
    }

    private static final class Outer implements CoGroupFunction<Flight, Weather, String> {
        private final boolean keepsLeft;
        private final boolean keepsRight;

        Outer(String how) {
            keepsLeft = how.equals("left") || how.equals("full");
            keepsRight = how.equals("right") || how.equals("full");
        }

        @Override
        public void coGroup(Iterable<Flight> flights, Iterable<Weather> reports, Collector<String> out) {
            boolean hasFlights = flights.iterator().hasNext();
            boolean hasReports = reports.iterator().hasNext();
            for (Flight flight : flights) {
                for (Weather weather : reports) {
                    out.collect(pair(flight, weather));
                }
                if (!hasReports && keepsLeft) {
                    out.collect(pair(flight, null));
                }
            }
            if (!hasFlights && keepsRight) {
                reports.forEach(weather -> out.collect(pair(null, weather)));
            }
        }
    }
}
