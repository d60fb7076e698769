"""What a program can get wrong about keys that its input's partitions keep together, at the call that is wrong."""

from typing import Any

import pytest

import tidegate as tg
from tests.unit.api.programs import Order, orders
from tidegate.errors import InvalidError
from tidegate.graph.logical import InputEdge, Partitioning
from tidegate.ids import OperatorName


def key_by(**more: Any) -> tg.KeyedStream[Any, Order]:
    return orders(tg.Job("shop")).key_by(lambda order: order.user, **more)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"key_type": str, "partitions": 0}, "partitions=0"),
        ({"key_type": str, "partitions": True}, "partitions=True"),
        ({"key_type": str, "partitions": "4"}, "partitions='4'"),
        ({"key_type": str, "partitions": 4, "partitioner": "fnv1a"}, "partitioner='fnv1a'"),
        ({"key_type": str, "partitioner": "crc32"}, "partitioner='crc32' and no partitions="),
        ({"partitions": 4}, "unknown"),
        ({"key_type": int, "partitions": 4}, "int"),
        ({"key_type": tuple[str, str], "partitions": 4}, "tuple[str, str]"),
    ],
)
def test_a_mistake_is_refused_where_it_is_made(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidError) as caught:
        key_by(**wrong)
    assert words in caught.value.failure.message
    assert "orders-key" in caught.value.failure.message
    assert caught.value.failure.remedy


@pytest.mark.parametrize("key_type", [str, bytes])
def test_keys_of_text_and_of_bytes_can_stay_where_they_are(key_type: Any) -> None:
    stream = key_by(key_type=key_type, partitions=4)
    node = stream._builder.node(OperatorName("orders-key"))
    assert node.key_type == f"{key_type.__name__} in 4 partitions by murmur2"
    assert stream._edge() == InputEdge(OperatorName("orders-key"), Partitioning.FORWARD)
    assert key_by(key_type=key_type)._edge().partitioning is Partitioning.HASH
