"""Mistakes that mypy --strict must find: each line with `# error` has one, the others have none. Never run."""

from collections.abc import Iterator

import tidegate as tg


class Length(tg.KeyedProcessFunction[str, str, int]):
    large = tg.SideOutput[str]("large")

    def process_element(self, value: str, ctx: tg.KeyedContext[str]) -> Iterator[int]:
        ctx.output(self.large, value)
        ctx.output(self.large, 7)  # error: not what the side output takes
        yield len(value)


class Plain(tg.ProcessFunction[str, int]):
    def process_element(self, value: str, ctx: tg.Context) -> Iterator[int]:
        print(ctx.key)  # error: a stream without key has none
        yield len(value)


def chain(words: tg.Stream[str], numbers: tg.Stream[int]) -> None:
    words.map(lambda word: word.nothing)  # error: no such attribute
    words.flat_map(lambda word: 7)  # error: nothing to iterate
    words.key_by(lambda word: [word])  # error: a list cannot be a key
    words.process(Length(), name="length")  # error: needs a key
    words.process(Plain)  # error: a class
    words.map(len, on_error="ignore")  # error: no such policy
    numbers.process(Plain())  # error: takes str, gets int
    numbers.key_by(lambda number: number).process(Length(), name="length")  # error: keys are str, not int
    words.key_by(lambda word: word).process(Length())  # error: state needs a name
    words.key_by(lambda word: word).process(Length(), name="length", on_error="skip")  # error: no other policy
    words.key_by(lambda word: word).map(len)  # error: a keyed stream has no map
    words.key_by(lambda word: word).process(Length(), name="length").map(abs)
