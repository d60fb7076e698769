"""Sources say whether they begin where their input ends now: the engine then reads nothing before a checkpoint has
where that was."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tidegate.connectors.collections import CollectionSource
from tidegate.connectors.local.source import LocalSource
from tidegate.kafka import KafkaSource
from tidegate.operators.contracts import starts_at_end

PINNED_BY_THE_USER = ["earliest", {0: 5}]


def test_S05_sources_from_latest_start_at_the_end(tmp_path: Path) -> None:
    assert starts_at_end(KafkaSource("localhost:1", "orders", start="latest"))
    assert starts_at_end(LocalSource(tmp_path, "orders", start="latest"))


@pytest.mark.parametrize("start", PINNED_BY_THE_USER)
def test_S05_sources_whose_start_stays_the_same_do_not(tmp_path: Path, start: object) -> None:
    assert not starts_at_end(KafkaSource("localhost:1", "orders", start=start))  # type: ignore[arg-type]
    assert not starts_at_end(LocalSource(tmp_path, "orders", start=start))  # type: ignore[arg-type]


def test_S05_a_moment_stays_the_same_and_so_does_what_no_source_says_of_itself() -> None:
    assert not starts_at_end(KafkaSource("localhost:1", "orders", start=datetime(2026, 3, 1, tzinfo=UTC)))
    assert not starts_at_end(CollectionSource([1, 2]))
