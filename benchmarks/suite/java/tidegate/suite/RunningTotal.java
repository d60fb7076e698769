package tidegate.suite;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** For each order its user's new total. */
final class RunningTotal extends KeyedProcessFunction<String, Order, Total> {
    private transient ValueState<Long> totals;
    private transient Total out;

    @Override
    public void open(OpenContext context) {
        totals = getRuntimeContext().getState(new ValueStateDescriptor<>("total", Long.class));
        out = new Total();
        out.start = Total.NO_WINDOW;
    }

    @Override
    public void processElement(Order order, Context context, Collector<Total> collector) throws Exception {
        Long before = totals.value();
        long total = (before == null ? 0 : before) + order.amount;
        totals.update(total);
        out.user = order.user;
        out.total = total;
        collector.collect(out);
    }
}
