package tidegate.suite;

import com.fasterxml.jackson.core.io.JsonStringEncoder;
import java.nio.charset.StandardCharsets;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Totals to JSON by hand, which is a good deal faster than an object mapper; the user is the key. */
final class TotalWriter implements KafkaRecordSerializationSchema<Total> {
    private final String topic;
    private transient StringBuilder text;

    TotalWriter(String topic) {
        this.topic = topic;
    }

    @Override
    public void open(SerializationSchema.InitializationContext context, KafkaSinkContext sink) {
        text = new StringBuilder();
    }

    @Override
    public ProducerRecord<byte[], byte[]> serialize(Total total, KafkaSinkContext context, Long timestamp) {
        text.setLength(0);
        text.append("{\"user\":\"");
        JsonStringEncoder.getInstance().quoteAsString(total.user, text);
        if (total.start != Total.NO_WINDOW) {
            text.append("\",\"start\":").append(total.start).append(",\"total\":");
        } else {
            text.append("\",\"total\":");
        }
        text.append(total.total).append('}');
        byte[] key = total.user.getBytes(StandardCharsets.UTF_8);
        return new ProducerRecord<>(topic, key, text.toString().getBytes(StandardCharsets.UTF_8));
    }
}
