"""Clusters of a test's own: what is done to them here would slow others down."""

from tests.kafka.conftest import own_kafka

__all__ = ["own_kafka"]
