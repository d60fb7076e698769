"""Running totals by user with PyFlink's DataStream API, Kafka to Kafka, from a topic's beginning to where it ends now.

Orders are decoded in Java, and so are totals encoded: what a Python function need not do is fastest. They leave through
a table, the way that PyFlink has to give a record a key of its own in plain text.
"""

# mypy: disable-error-code="import-not-found, misc, no-any-unimported"

import sys
from argparse import ArgumentParser
from collections.abc import Iterator

from pyflink.common import Configuration, Row, Types, WatermarkStrategy
from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from pyflink.datastream.formats.json import JsonRowDeserializationSchema
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.table import DataTypes, Schema, StreamTableEnvironment, TableDescriptor

ORDER = Types.ROW_NAMED(["user", "amount"], [Types.STRING(), Types.LONG()])
TOTAL = Types.ROW_NAMED(["user", "total"], [Types.STRING(), Types.LONG()])


class RunningTotal(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self._total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        total = (self._total.value() or 0) + value[1]
        self._total.update(total)
        yield Row(value[0], total)


def main() -> None:
    parser = ArgumentParser()
    for name in ("bootstrap", "source", "sink", "guarantee"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--slots", type=int, default=1)
    for kind in ("flink", "consumer", "producer"):
        parser.add_argument(f"--{kind}", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()

    settings = Configuration()
    settings.set_string("python.executable", sys.executable)
    for name, value in pairs(options.flink):
        settings.set_string(name, value)
    environment = StreamExecutionEnvironment.get_execution_environment(settings)
    environment.set_parallelism(options.slots)
    tables = StreamTableEnvironment.create(environment)

    source = KafkaSource.builder().set_bootstrap_servers(options.bootstrap).set_topics(options.source)
    source = source.set_starting_offsets(KafkaOffsetsInitializer.earliest())
    source = source.set_bounded(KafkaOffsetsInitializer.latest()).set_properties(dict(pairs(options.consumer)))
    json = JsonRowDeserializationSchema.builder().type_info(ORDER).build()
    orders = environment.from_source(
        source.set_value_only_deserializer(json).build(), WatermarkStrategy.no_watermarks(), "orders"
    )
    totals = orders.key_by(lambda order: order[0], key_type=Types.STRING()).process(RunningTotal(), output_type=TOTAL)

    schema = Schema.new_builder().column("user", DataTypes.STRING()).column("total", DataTypes.BIGINT()).build()
    sink = TableDescriptor.for_connector("kafka").schema(schema).option("topic", options.sink)
    for name, value in {
        "properties.bootstrap.servers": options.bootstrap,
        "key.format": "raw",
        "key.fields": "user",
        "value.format": "json",
        "value.fields-include": "ALL",
        "sink.delivery-guarantee": options.guarantee,
        "sink.transactional-id-prefix": options.sink,
        **{f"properties.{name}": value for name, value in pairs(options.producer)},
    }.items():
        sink = sink.option(name, value)
    tables.from_data_stream(totals).execute_insert(sink.build()).wait()


def pairs(settings: list[str]) -> Iterator[tuple[str, str]]:
    for setting in settings:
        name, value = setting.split("=", 1)
        yield name, value


if __name__ == "__main__":
    main()
