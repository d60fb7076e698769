"""Kafka's data path in whole record batches: a second implementation of `client.Consumer`.

Here a record is never an object of its own: what arrives is bytes of record batches, and what leaves are columns. What
decides (`fetching`, `group_commits`) performs no I/O; sockets are touched in `channels` and `opening` alone.
"""
