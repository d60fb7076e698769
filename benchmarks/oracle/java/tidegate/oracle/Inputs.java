package tidegate.oracle;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** The two files as streams, in their order, with timestamps and a watermark behind each record. */
final class Inputs {

    private final StreamExecutionEnvironment env;
    private final Path folder;
    private final Case asked;

    Inputs(StreamExecutionEnvironment env, Path folder, Case asked) {
        this.env = env;
        this.folder = folder;
        this.asked = asked;
    }

    DataStream<Flight> flights() throws IOException {
        return lines("flights.csv", false)
                .map(Flight::parse)
                .returns(Flight.class)
                .assignTimestampsAndWatermarks(
                        InEachRecord.<Flight>strategy(asked.duration("bound").toMillis())
                                .withTimestampAssigner((flight, before) -> flight.at))
                .name("flights");
    }

    DataStream<Weather> weather() throws IOException {
        return lines("weather.csv", false)
                .map(Weather::parse)
                .returns(Weather.class)
                .assignTimestampsAndWatermarks(
                        InEachRecord.<Weather>strategy(asked.duration("bound").toMillis())
                                .withTimestampAssigner((weather, before) -> weather.at))
                .name("weather");
    }

    /** Both, in the order of one file, which is read in lockstep. */
    DataStream<Lockstep.Event> both() throws IOException {
        long bound = asked.duration("bound").toMillis();
        return lines("both.csv", true)
                .map(Lockstep.Event::parse)
                .returns(Lockstep.Event.class)
                .assignTimestampsAndWatermarks(
                        WatermarkStrategy.<Lockstep.Event>forGenerator(context -> new InEachRecord<>(bound, true))
                                .withTimestampAssigner((event, before) -> event.at))
                .name("both");
    }

    private SingleOutputStreamOperator<String> lines(String file, boolean isInLockstep) throws IOException {
        Path path = folder.resolve(file);
        long count;
        try (Stream<String> lines = Files.lines(path)) {
            count = lines.count() - 1;
        }
        var source = new DataGeneratorSource<>(new Lines(path.toString(), isInLockstep), count, Types.STRING);
        return env.fromSource(source, WatermarkStrategy.noWatermarks(), file);
    }

    /** The lines of a file behind its header, asked for in order. */
    private static final class Lines implements GeneratorFunction<Long, String> {
        private final String path;
        private final boolean isInLockstep;
        private transient BufferedReader reader;

        Lines(String path, boolean isInLockstep) {
            this.path = path;
            this.isInLockstep = isInLockstep;
        }

        @Override
        public void open(SourceReaderContext context) throws Exception {
            reader = Files.newBufferedReader(Path.of(path));
            reader.readLine();
        }

        @Override
        public String map(Long index) throws Exception {
            if (isInLockstep) {
                Lockstep.await();
                Lockstep.SENT.incrementAndGet();
            }
            return reader.readLine();
        }

        @Override
        public void close() throws Exception {
            reader.close();
        }
    }

    /** Bounded out-of-orderness, told behind each record and not by the clock: which records are late depends on them alone. */
    private static final class InEachRecord<T> implements WatermarkGenerator<T> {
        private final long bound;
        private final boolean isInLockstep;
        private long newest = Long.MIN_VALUE;

        private InEachRecord(long bound, boolean isInLockstep) {
            this.bound = bound;
            this.isInLockstep = isInLockstep;
        }

        static <T> WatermarkStrategy<T> strategy(long bound) {
            return WatermarkStrategy.forGenerator(context -> new InEachRecord<T>(bound, false));
        }

        @Override
        public void onEvent(T event, long timestamp, WatermarkOutput output) {
            if (timestamp > newest) {
                newest = timestamp;
                if (isInLockstep) {
                    // It goes to both inputs.
                    Lockstep.SENT.addAndGet(2);
                }
                output.emitWatermark(new Watermark(newest - bound - 1));
            }
        }

        @Override
        public void onPeriodicEmit(WatermarkOutput output) {}
    }
}
