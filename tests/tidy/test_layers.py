"""The import contracts of pyproject.toml hold, and each is shown to break on an import that it forbids."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAYERS = "Folders are layers: each imports only what is below it"
CONNECTORS = "Nobody in the engine imports a connector"
FACADE = "Only what stands above the engine imports the facade"
PURE = "What decides performs no I/O and reads no clock"


def _broken_contracts(project: Path) -> list[str]:
    """Names of the broken contracts of the package under `project/src`."""
    result = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project / "src"), "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Contracts: " in result.stdout, result.stdout + result.stderr
    broken = [line.partition(" BROKEN")[0] for line in result.stdout.splitlines() if " BROKEN" in line]
    assert (result.returncode == 0) == (broken == []), result.stdout
    return broken


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_the_tree_keeps_every_contract() -> None:
    assert _broken_contracts(ROOT) == []


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("runtime/extra.py", "import tidegate.scheduling", LAYERS),
        ("connectors/extra.py", "import tidegate.api", LAYERS),
        ("extra/__init__.py", "", LAYERS),
        ("operators/extra.py", "import tidegate.connectors.local", CONNECTORS),
        ("graph/extra.py", "import tidegate", FACADE),
        ("checkpoint/protocol.py", "import socket", PURE),
        ("graph/extra.py", "from threading import Lock", PURE),
        ("ids.py", "import time", PURE),
    ],
)
def test_a_forbidden_import_breaks_its_contract(copy: Path, module: str, line: str, contract: str) -> None:
    path = copy / "src" / "tidegate" / module
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    assert contract in _broken_contracts(copy)
