package tidegate.suite;

import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.streaming.api.functions.windowing.RichWindowFunction;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/** The sum of a user's orders in a window, and what to say of it. */
final class WindowTotal {
    private WindowTotal() {}

    static final class Sum implements AggregateFunction<Order, Long, Long> {
        @Override
        public Long createAccumulator() {
            return 0L;
        }

        @Override
        public Long add(Order order, Long sum) {
            return sum + order.amount;
        }

        @Override
        public Long getResult(Long sum) {
            return sum;
        }

        @Override
        public Long merge(Long one, Long other) {
            return one + other;
        }
    }

    static final class Result extends RichWindowFunction<Long, Total, String, TimeWindow> {
        private final Total out = new Total();

        @Override
        public void apply(String user, TimeWindow window, Iterable<Long> sums, Collector<Total> collector) {
            out.user = user;
            out.start = window.getStart();
            out.total = sums.iterator().next();
            collector.collect(out);
        }
    }
}
