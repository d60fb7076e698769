package tidegate.suite;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import java.io.IOException;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/** JSON to orders, token by token, into one object that is used again: the exchange behind it takes what it needs. */
final class OrderReader implements KafkaRecordDeserializationSchema<Order> {
    private static final JsonFactory JSON = new JsonFactory();

    private transient Order order;

    @Override
    public void open(DeserializationSchema.InitializationContext context) {
        order = new Order();
    }

    @Override
    public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Order> out) throws IOException {
        try (JsonParser parser = JSON.createParser(record.value())) {
            parser.nextToken();
            for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
                parser.nextToken();
                switch (name) {
                    case "user" -> order.user = parser.getText();
                    case "amount" -> order.amount = parser.getLongValue();
                    case "ts" -> order.ts = parser.getLongValue();
                    default -> parser.skipChildren();
                }
            }
        }
        out.collect(order);
    }

    @Override
    public TypeInformation<Order> getProducedType() {
        return TypeInformation.of(Order.class);
    }
}
