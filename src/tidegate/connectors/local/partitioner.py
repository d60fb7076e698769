"""Which partition a record goes to. The same key must give the same partition in every process and on every machine."""

from collections.abc import Sequence

import xxhash


def assign(keys: Sequence[bytes | None], partitions: int, sticky: int) -> list[int]:
    """One partition a key: by hash of the key; records without one go to partition `sticky` modulo `partitions`.

    Keyless records of one batch stay together, so that their order survives and one write touches one partition.
    """
    keyless = sticky % partitions
    digest = xxhash.xxh3_64_intdigest
    return [keyless if key is None else digest(key) % partitions for key in keys]
