package tidegate.oracle;

import org.apache.flink.api.common.functions.AggregateFunction;

/** What a window keeps of its flights. */
public class Totals {
    public int flights;
    public int cancelled;

    /** Minutes of all that left. */
    public long delay;

    public Integer worst;

    private void add(Flight flight) {
        flights++;
        if (flight.delay == null) {
            cancelled++;
        } else {
            delay += flight.delay;
            worst = worst == null ? flight.delay : Integer.valueOf(Math.max(worst, flight.delay));
        }
    }

    private void add(Totals other) {
        flights += other.flights;
        cancelled += other.cancelled;
        delay += other.delay;
        if (worst == null || (other.worst != null && other.worst > worst)) {
            worst = other.worst;
        }
    }

    /** Null when no flight has left. */
    Double mean() {
        return flights == cancelled ? null : (double) delay / (flights - cancelled);
    }

    static final class OfFlights implements AggregateFunction<Flight, Totals, Totals> {
        @Override
        public Totals createAccumulator() {
            return new Totals();
        }

        @Override
        public Totals add(Flight flight, Totals totals) {
            totals.add(flight);
            return totals;
        }

        @Override
        public Totals getResult(Totals totals) {
            return totals;
        }

        @Override
        public Totals merge(Totals one, Totals other) {
            one.add(other);
            return one;
        }
    }
}
