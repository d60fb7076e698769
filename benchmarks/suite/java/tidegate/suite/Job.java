package tidegate.suite;

import java.io.IOException;
import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;

/** One of the three jobs, from a topic's beginning to where it ends now, on a cluster inside this process. */
public final class Job {
    private static final Duration WINDOW = Duration.ofSeconds(60);
    private static final Duration OUT_OF_ORDERNESS = Duration.ofSeconds(5);

    private final Options options;
    private final StreamExecutionEnvironment environment;

    private Job(Options options) {
        this.options = options;
        Configuration settings = Configuration.fromMap(options.under("flink."));
        int slots = Integer.parseInt(options.get("slots"));
        environment = StreamExecutionEnvironment.createLocalEnvironment(slots, settings);
    }

    public static void main(String[] arguments) throws Exception {
        new Job(new Options(arguments)).run();
    }

    private void run() throws Exception {
        switch (options.get("workload")) {
            case "W0" -> forward();
            case "W1" -> totals();
            case "W2" -> windows();
            default -> throw new IllegalArgumentException("no such workload: " + options.get("workload"));
        }
        environment.execute(options.get("workload"));
    }

    private void forward() throws IOException {
        read(new AsRead.Reader(), WatermarkStrategy.noWatermarks()).sinkTo(sink(new AsRead.Writer(options.get("sink"))));
    }

    private void totals() throws IOException {
        read(new OrderReader(), WatermarkStrategy.noWatermarks())
                .keyBy(order -> order.user)
                .process(new RunningTotal())
                .sinkTo(sink(new TotalWriter(options.get("sink"))));
    }

    private void windows() throws IOException {
        WatermarkStrategy<Order> watermarks = WatermarkStrategy.<Order>forBoundedOutOfOrderness(OUT_OF_ORDERNESS)
                .withTimestampAssigner((order, written) -> order.ts);
        read(new OrderReader(), watermarks)
                .keyBy(order -> order.user)
                .window(TumblingEventTimeWindows.of(WINDOW))
                .aggregate(new WindowTotal.Sum(), new WindowTotal.Result())
                .sinkTo(sink(new TotalWriter(options.get("sink"))));
    }

    private <T> DataStream<T> read(KafkaRecordDeserializationSchema<T> reader, WatermarkStrategy<T> watermarks) {
        KafkaSource<T> source = KafkaSource.<T>builder()
                .setBootstrapServers(options.get("bootstrap"))
                .setTopics(options.get("source"))
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setBounded(OffsetsInitializer.latest())
                .setProperties(options.properties("consumer."))
                .setDeserializer(reader)
                .build();
        return environment.fromSource(source, watermarks, "source");
    }

    private <T> KafkaSink<T> sink(KafkaRecordSerializationSchema<T> writer) throws IOException {
        return KafkaSink.<T>builder()
                .setBootstrapServers(options.get("bootstrap"))
                .setKafkaProducerConfig(options.properties("producer."))
                .setDeliveryGuarantee(DeliveryGuarantee.valueOf(options.get("guarantee")))
                .setTransactionalIdPrefix(options.get("sink"))
                .setRecordSerializer(writer)
                .build();
    }
}
