"""Kafka's error codes as far as the simulated cluster answers with them. They are numbers of Kafka's protocol: nothing
here may be invented."""

from enum import IntEnum


class Code(IntEnum):
    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    BROKER_NOT_AVAILABLE = 8
    COORDINATOR_NOT_AVAILABLE = 15
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    PRODUCER_FENCED = 90


class BrokerError(Exception):
    """A request was answered with `code`; nothing happened."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(f"{text} ({code.name})")
        self.code = code
