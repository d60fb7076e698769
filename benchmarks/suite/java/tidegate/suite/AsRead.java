package tidegate.suite;

import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Records as the consumer gives them, key and value untouched; source and sink are chained, so they never travel. */
final class AsRead {
    private AsRead() {}

    static final class Reader implements KafkaRecordDeserializationSchema<ConsumerRecord<byte[], byte[]>> {
        @Override
        public void deserialize(
                ConsumerRecord<byte[], byte[]> record, Collector<ConsumerRecord<byte[], byte[]>> out) {
            out.collect(record);
        }

        @Override
        public TypeInformation<ConsumerRecord<byte[], byte[]>> getProducedType() {
            return TypeInformation.of(new TypeHint<>() {});
        }
    }

    static final class Writer implements KafkaRecordSerializationSchema<ConsumerRecord<byte[], byte[]>> {
        private final String topic;

        Writer(String topic) {
            this.topic = topic;
        }

        @Override
        public ProducerRecord<byte[], byte[]> serialize(
                ConsumerRecord<byte[], byte[]> record, KafkaSinkContext context, Long timestamp) {
            return new ProducerRecord<>(topic, record.key(), record.value());
        }
    }
}
