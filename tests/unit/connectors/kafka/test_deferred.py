"""Packages whose beginnings wait: what nobody asked for is not imported, and whoever asks gets the whole package."""

import subprocess
import sys
from pathlib import Path

import pytest


def run(program: str, *folders: Path) -> str:
    """What the program prints, in an interpreter of its own that finds modules in `folders`, too."""
    before = f"import sys; sys.path[:0] = {[str(folder) for folder in folders]!r}\n"
    done = subprocess.run([sys.executable, "-c", before + program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A folder with a package that says when it begins, and one in it that does, too."""
    inner = tmp_path / "large" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "large" / "__init__.py").write_text("from large.costly import NAME\nprint('large')\n")
    (tmp_path / "large" / "costly.py").write_text("NAME = 'name'\n")
    (tmp_path / "large" / "small.py").write_text("SMALL = 'small'\n")
    (inner / "__init__.py").write_text("import large.inner.costly\nINNER = 'inner'\nprint('large.inner')\n")
    (inner / "costly.py").write_text("")
    (inner / "small.py").write_text("SMALL = 'inner small'\n")
    return tmp_path


DEFERRED = "from tidegate.connectors.kafka.deferred import defer\ndefer('large')\ndefer('large.inner')\n"


def test_a_part_comes_without_the_beginning_and_without_the_other_parts(large: Path) -> None:
    program = DEFERRED + "import large.small, large.inner.small\nprint(large.small.SMALL, large.inner.small.SMALL)\n"
    assert run(program + "print('large.costly' in sys.modules)", large) == "small inner small\nFalse"


@pytest.mark.parametrize(
    "ask",
    ["import large; print(large.NAME)", "from large import NAME; print(NAME)", "import large as l; print(l.NAME)"],
)
def test_who_asks_for_what_the_beginning_gives_gets_it_and_it_begins_once(large: Path, ask: str) -> None:
    assert run(f"{DEFERRED}import large.small\n{ask}\n{ask}", large) == "large\nname\nname"


def test_a_package_in_a_package_is_what_it_would_be(large: Path) -> None:
    program = (
        DEFERRED + "import large.inner.small\nprint(large.inner.INNER)\nfrom large import inner\nprint(inner.INNER)\n"
    )
    assert run(program, large) == "large.inner\ninner\ninner"


def test_what_a_package_has_not_is_missing_as_from_any_other(large: Path) -> None:
    program = (
        DEFERRED
        + "import large\ntry: large.nothing\nexcept AttributeError as error: print(error)\n"
        + "try: from large import nothing\nexcept ImportError as error: print(type(error).__name__)\n"
    )
    assert run(program, large) == "large\nmodule 'large' has no attribute 'nothing'\nImportError"


def test_a_beginning_that_fails_fails_for_whoever_asked_and_again(large: Path) -> None:
    (large / "large" / "__init__.py").write_text("raise ValueError('broken')\n")
    ask = "try: large.NAME\nexcept ValueError as error: print(error)\n"
    assert run(f"{DEFERRED}import large\n{ask}{ask}", large) == "broken\nbroken"


def test_what_has_been_imported_or_is_not_there_is_left_alone(large: Path) -> None:
    program = "import large\n" + DEFERRED + "defer('nowhere')\nprint(type(large).__name__, 'nowhere' in sys.modules)"
    assert run(program, large) == "large\nmodule False"


def test_threads_that_ask_at_once_get_the_same(large: Path) -> None:
    (large / "large" / "__init__.py").write_text(
        "import time\nprint('large')\nEARLY = 1\ntime.sleep(0.2)\nLATE = 2\n",
    )
    program = (
        DEFERRED
        + "import large\nfrom concurrent.futures import ThreadPoolExecutor\n"
        + "with ThreadPoolExecutor(4) as pool: found = list(pool.map(lambda _: (large.EARLY, large.LATE), range(4)))\n"
        + "print(found)"
    )
    assert run(program, large) == f"large\n{[(1, 2)] * 4}"


def test_the_clients_that_nobody_uses_are_not_imported_and_are_there_for_who_does() -> None:
    moves = "import tidegate.connectors.kafka.batches.consumer, tidegate.connectors.kafka.batches.factory\n"
    unused = "('kafka.admin', 'kafka.consumer', 'kafka.net.connection', 'aiokafka.client', 'confluent_kafka.admin')"
    assert run(f"{moves}print([name for name in {unused} if name in sys.modules])") == "[]"
    uses = (
        "from aiokafka import AIOKafkaProducer as one\nimport kafka\n"
        "print(one.__name__, kafka.KafkaProducer.__name__)\n"
        "from confluent_kafka import SerializingProducer as other\nfrom confluent_kafka.admin import AdminClient\n"
        "print(other.__name__, AdminClient.__name__)"
    )
    assert run(moves + uses) == "AIOKafkaProducer KafkaProducer\nSerializingProducer AdminClient"
