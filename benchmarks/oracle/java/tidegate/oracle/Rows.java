package tidegate.oracle;

import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.util.Collector;

/** Rows of results: arrays of JSON, one in a line. */
final class Rows {

    private Rows() {}

    static String json(Object... values) {
        StringBuilder text = new StringBuilder("[");
        for (int i = 0; i < values.length; i++) {
            text.append(i == 0 ? "" : ",");
            if (values[i] instanceof String string) {
                text.append('"').append(string).append('"');
            } else {
                text.append(values[i]);
            }
        }
        return text.append("]").toString();
    }

    /** With the timestamp that the engine has given to each row. */
    static DataStream<String> withTimestamps(DataStream<String> rows) {
        return rows.process(new Stamped()).returns(Types.STRING);
    }

    static void write(DataStream<String> rows, Path file) {
        rows.sinkTo(new Lines(file.toString())).name("rows");
    }

    private static final class Stamped extends ProcessFunction<String, String> {
        @Override
        public void processElement(String row, Context context, Collector<String> out) {
            out.collect(row.substring(0, row.length() - 1) + "," + context.timestamp() + "]");
        }
    }

    private record Lines(String path) implements Sink<String> {
        @Override
        public SinkWriter<String> createWriter(WriterInitContext context) throws IOException {
            BufferedWriter writer = Files.newBufferedWriter(Path.of(path));
            return new SinkWriter<>() {
                @Override
                public void write(String row, Context context) throws IOException {
                    writer.write(row);
                    writer.newLine();
                }

                @Override
                public void flush(boolean endOfInput) throws IOException {
                    writer.flush();
                }

                @Override
                public void close() throws IOException {
                    writer.close();
                }
            };
        }
    }
}
