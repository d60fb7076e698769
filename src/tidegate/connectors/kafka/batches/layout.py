"""Where things are in a record batch, of the format that Kafka has had since 0.11 (KIP-98, `DefaultRecordBatch`)."""

import struct

HEADER = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, checksum, attributes, last offset delta, first and latest timestamp,
producer id and epoch, base sequence, count."""
LENGTH_AT = 8
LENGTH_END = 12
"""A batch's length counts what comes behind it."""
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
"""From there on a batch is what its checksum is of."""
CURRENT = 2
"""The magic number of the format."""

COMPRESSION = 0x07
BY_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
"""Attributes: three bits for the codec, and one each for the others."""
