"""A serializer that a program brings along: it is believed in nothing, and its errors say whose code failed."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.serializers.money import Money, MoneySerializer
from tidegate.errors import CorruptError, InvalidError
from tidegate.serializers import Serializer, TypeSerializer, serialized, serializer_for


class Cents(Money):
    """A kind of money."""


class Failing(MoneySerializer):
    immutable = False

    def __init__(self, encoded: Any = b"", decoded: Any = None) -> None:
        self.encoded = encoded
        self.decoded = decoded

    def encode(self, value: Money) -> bytes:
        if isinstance(self.encoded, Exception):
            raise self.encoded
        result: bytes = self.encoded
        return result

    def decode(self, data: bytes, version: int) -> Money:
        if isinstance(self.decoded, Exception):
            raise self.decoded
        result: Money = self.decoded
        return result


def serializer_of(own: TypeSerializer[Money]) -> Serializer[Any]:
    return serializer_for(serialized(Money, own), "state purse")


def test_values_are_written_and_read_by_the_programs_own_code() -> None:
    serializer = serializer_of(MoneySerializer())
    assert serializer.encode(Money(5, "EUR")) == b"5 EUR"
    assert serializer.decode(b"5 EUR") == Money(5, "EUR")
    assert (serializer.id, serializer.type_spelling) == ("money/2", "serialized(tests.unit.serializers.money.Money)")
    assert serializer.immutable
    assert not serializer_of(Failing()).immutable
    assert serializer.classes == {Money}
    assert serializer.admit(Cents(1, "EUR")) == Money(1, "EUR")


def test_what_an_earlier_version_wrote_is_given_to_decode_with_that_version() -> None:
    serializer = serializer_of(MoneySerializer())
    assert serializer.reader("money/1")(b"5") == Money(5, "EUR")
    assert serializer.reader("money/2")(b"5 USD") == Money(5, "USD")
    for other in ("money/3", "cash/1", "msgpack/1", "pickle/1", "money", "money/x", "/1"):
        with pytest.raises(InvalidError, match=f"written by the serializer {other}"):
            serializer.reader(other)


@pytest.mark.parametrize("value", [1, None, "5 EUR"])
def test_a_value_of_another_class_never_reaches_the_programs_code(value: Any) -> None:
    serializer = serializer_of(Failing(encoded=AssertionError("was called")))
    assert not serializer.conforms(value)
    for write in (serializer.encode, serializer.admit):
        with pytest.raises(InvalidError, match=r"state purse is declared serialized\(.*Money\)"):
            write(value)


def test_an_error_of_encode_names_state_serializer_and_error_and_shows_the_programs_frames_only() -> None:
    with pytest.raises(
        InvalidError, match="state purse: encode of serializer money/2 raised KeyError: 'EUR'"
    ) as caught:
        serializer_of(Failing(encoded=KeyError("EUR"))).encode(Money(1, "EUR"))
    frames = caught.value.failure.traceback
    assert "test_custom.py" in frames
    assert "serializers/custom.py" not in frames
    with pytest.raises(InvalidError, match="returned a str"):
        serializer_of(Failing(encoded="5 EUR")).encode(Money(1, "EUR"))


def test_an_error_of_decode_is_corrupt_and_names_the_version_of_the_bytes() -> None:
    failing = serializer_of(Failing(decoded=ValueError("no amount")))
    message = "state purse: decode of serializer money/2 raised ValueError on 3 bytes of version 1: no amount"
    with pytest.raises(CorruptError, match=message) as caught:
        failing.reader("money/1")(b"abc")
    assert "test_custom.py" in caught.value.failure.traceback
    with pytest.raises(CorruptError, match="returned a int for bytes of version 2"):
        serializer_of(Failing(decoded=5)).decode(b"")


def _named(**attributes: Any) -> Any:
    return type("Own", (MoneySerializer,), attributes)()


@pytest.mark.parametrize(
    ("own", "problem"),
    [
        (lambda: _named(id=""), "id ''"),
        (lambda: _named(id="a/b"), "id 'a/b'"),
        (lambda: _named(id="pickle"), "id 'pickle'"),
        (lambda: _named(id=None), "id None"),
        (lambda: _named(version=0), "version 0"),
        (lambda: _named(version=True), "version True"),
        (lambda: _named(version="1"), "version '1'"),
        (lambda: _named(encode=None), "no method encode"),
        (object, "serializer object has the id None"),
        (lambda: MoneySerializer, "MoneySerializer was given as a class"),
    ],
)
def test_a_serializer_without_identity_or_methods_is_refused_where_it_is_declared(
    own: Callable[[], Any], problem: str
) -> None:
    with pytest.raises(InvalidError, match=problem) as caught:
        serializer_of(own())
    assert caught.value.failure.remedy


def test_what_is_serialized_is_a_class() -> None:
    with pytest.raises(InvalidError, match=r"serialized\(int \| str, ...\) does not name a class"):
        serializer_for(serialized(int | str, MoneySerializer()))  # type: ignore[arg-type]
