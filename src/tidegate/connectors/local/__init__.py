"""The embedded log: durable partitioned topics with transactions in a directory, for one machine and without a broker.

It behaves as Kafka does where a job can tell the difference: offsets, read_committed, fencing, transactions that
outlive their producer. It must never be put on a network file system: SQLite's locks do not hold there.
"""
