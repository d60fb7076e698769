package tidegate.oracle;

import org.apache.flink.api.common.functions.ReduceFunction;
import org.apache.flink.api.common.state.ReducingState;
import org.apache.flink.api.common.state.ReducingStateDescriptor;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.streaming.api.windowing.triggers.Trigger;
import org.apache.flink.streaming.api.windowing.triggers.TriggerResult;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;

/** With every so many records before the end, at the end, and with each record behind it. */
final class EarlyByCount extends Trigger<Object, TimeWindow> {

    private final long most;
    private final ReducingStateDescriptor<Long> counts =
            new ReducingStateDescriptor<>("counts", (ReduceFunction<Long>) Long::sum, LongSerializer.INSTANCE);

    EarlyByCount(long most) {
        this.most = most;
    }

    @Override
    public TriggerResult onElement(Object element, long timestamp, TimeWindow window, TriggerContext context)
            throws Exception {
        if (window.maxTimestamp() <= context.getCurrentWatermark()) {
            return TriggerResult.FIRE;
        }
        context.registerEventTimeTimer(window.maxTimestamp());
        ReducingState<Long> count = context.getPartitionedState(counts);
        count.add(1L);
        if (count.get() < most) {
            return TriggerResult.CONTINUE;
        }
        count.clear();
        return TriggerResult.FIRE;
    }

    @Override
    public TriggerResult onEventTime(long time, TimeWindow window, TriggerContext context) throws Exception {
        if (time != window.maxTimestamp()) {
            return TriggerResult.CONTINUE;
        }
        context.getPartitionedState(counts).clear();
        return TriggerResult.FIRE;
    }

    @Override
    public TriggerResult onProcessingTime(long time, TimeWindow window, TriggerContext context) {
        return TriggerResult.CONTINUE;
    }

    @Override
    public boolean canMerge() {
        return true;
    }

    @Override
    public void onMerge(TimeWindow window, OnMergeContext context) {
        context.mergePartitionedState(counts);
        if (window.maxTimestamp() > context.getCurrentWatermark()) {
            context.registerEventTimeTimer(window.maxTimestamp());
        }
    }

    @Override
    public void clear(TimeWindow window, TriggerContext context) throws Exception {
        context.deleteEventTimeTimer(window.maxTimestamp());
        context.getPartitionedState(counts).clear();
    }
}
