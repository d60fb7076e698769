"""Many calls of the compiled part with hostile bytes and columns, in a process of its own, under what watches each byte
that it touches: `python -m tests.unit.native.hostile LIBRARY SEED ROUNDS`."""

import random
import sys
from array import array
from contextlib import suppress
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

NAME = "tidegate._native"


def loaded(path: str) -> Any:
    """The compiled part in that file, for whoever imports it from now on."""
    spec = spec_from_file_location(NAME, path, loader=ExtensionFileLoader(NAME, path))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[NAME] = module
    return module


def made(source: random.Random, model: Any, count: int) -> bytes:
    """Records, of which mostly some bytes are changed."""
    numbers = [0, 1, -1, 63, 64, -65, 1 << 40, (1 << 63) - 1, -(1 << 63)]

    def data() -> bytes | None:
        return None if source.random() < 0.2 else source.randbytes(source.choice([0, 1, 3, 20, 64, 130]))

    rows = [
        model.Row(
            *(source.choice(numbers), source.choice(numbers), data(), data()),
            [(data() or b"", data()) for _ in range(source.randrange(3))],
        )
        for _ in range(count)
    ]
    body = bytearray(b"".join(map(model.record, rows)))
    for _ in range(source.randrange(4)):
        at = source.randrange(len(body) + 1)
        match source.randrange(5):
            case 0:
                del body[at : at + source.randrange(3)]
            case 1:
                body[at:at] = source.randbytes(source.randrange(4))
            case 2:
                body[at : at + 1] = model.number(source.choice(numbers) + source.randrange(-3, 3))
            case 3:
                del body[at:]
            case _ if at < len(body):
                body[at] ^= 1 << source.randrange(8)
    return bytes(body) if source.random() < 0.95 else source.randbytes(source.randrange(200))


def read_one(native: Any, model: Any, source: random.Random) -> bool:
    """Refuses it just when Kafka's rules do. Behind an array of so many elements there is not one byte more."""
    count = source.randrange(5)
    body = made(source, model, count)
    count = count if source.random() < 0.9 else source.choice([0, 1, count + 1, 1 << 31, -1])
    exact = array("B", list(body))
    try:
        expected = model.rows(body, count)
    except ValueError:
        expected = None
    try:
        values, *_ = native.read_records(exact, 0, len(body), count, source.randrange(32), 1 << 62, 1 << 62, 5)
    except ValueError:
        assert expected is None, body
        return False
    assert expected is not None, body
    assert values == [row.value for row in expected]
    return True


def write_some(native: Any, source: random.Random) -> None:
    """What is wrong is mostly among it."""
    batch = bytearray(source.choice([0, 1, 61, 4096]))

    def data() -> Any:
        wrong = source.choice([5, "text", memoryview(b"abc")[::2], batch])
        right = source.choice(
            [None, b"", source.randbytes(source.choice([1, 63, 64, 5000])), bytearray(70), array("I", [1])]
        )
        return wrong if source.random() < 0.05 else right

    def header() -> Any:
        wrong = source.choice([5, None, (), ("\ud800", b""), ("a", batch), ["a", "b"], (b"a", b"")])
        return (
            wrong
            if source.random() < 0.05
            else (source.choice(["", "größe", "n" * 200]), source.choice([None, b"h" * 99]))
        )

    count = source.randrange(9)
    times = [source.choice([0, -1, (1 << 63) - 1, -(1 << 63)]) for _ in range(count)]
    headers = [source.choice([None, [header() for _ in range(source.randrange(3))]]) for _ in range(count)]
    columns = [data() for _ in range(count)], [data() for _ in range(count)], times, headers
    limit = source.choice([1 << 30, 0, -(1 << 63), (1 << 63) - 1, source.randrange(9000)])
    number = source.choice([0, 1, (1 << 31) - 3])
    with suppress(TypeError, ValueError, BufferError):
        native.append_records(batch, *columns, source.randrange(3), number, times[0] if times else -1, -1, limit)
    keys = [source.choice([source.randbytes(source.randrange(9)), "größe", "\ud800", None]) for _ in range(count)]
    native.first_elsewhere(keys, 0, source.choice([1, 7]))
    native.partitions_of([key if isinstance(key, bytes) else None for key in keys], 7)


def main(path: str, seed: int, rounds: int) -> None:
    native = loaded(path)
    from tests.unit.native import calls, model
    from tidegate.native import native as used

    assert used is native
    source = random.Random(seed)
    for name, given in calls.OWN:
        calls.call(native, name, given, bytearray(9))
    were_read = 0
    for _ in range(rounds):
        were_read += read_one(native, model, source)
        write_some(native, source)
    print(f"{rounds} rounds, of which {were_read} were read")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
