"""A class that msgspec does not know, and the serializer that a program would bring along for it."""


class Money:
    """An amount in a currency."""

    def __init__(self, amount: int, currency: str) -> None:
        self.amount = amount
        self.currency = currency

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and (other.amount, other.currency) == (self.amount, self.currency)

    def __hash__(self) -> int:
        return hash((self.amount, self.currency))

    def __repr__(self) -> str:
        return f"Money({self.amount}, {self.currency!r})"


class MoneySerializer:
    """Version 1 wrote the amount alone, in euros."""

    id = "money"
    version = 2
    immutable = True

    def encode(self, value: Money) -> bytes:
        return f"{value.amount} {value.currency}".encode("ascii")

    def decode(self, data: bytes, version: int) -> Money:
        if version == 1:
            return Money(int(data), "EUR")
        amount, _, currency = data.decode("ascii").partition(" ")
        return Money(int(amount), currency)
