"""Kafka as source and sink. `client` is the port that everything here is written against."""
