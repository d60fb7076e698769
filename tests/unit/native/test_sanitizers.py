"""Under gcc's sanitizers, which see each byte that the compiled part touches and each sum that goes wrong, hostile
bytes and columns show nothing; and what would be shown if a check were missing."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from shutil import which

import pytest

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src" / "tidegate" / "_native.c"
GCC = which("gcc")
ROUNDS = 20_000


def _library(name: str) -> Path | None:
    """One of gcc's own; its bare name is what gcc says when it has none."""
    if GCC is None:
        return None
    found = subprocess.run(
        [GCC, f"-print-file-name={name}"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return Path(found) if Path(found).is_absolute() else None


ASAN = _library("libasan.so")
HEADERS = Path(sysconfig.get_path("include"), "Python.h")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(GCC is None, reason="there is no gcc"),
    pytest.mark.skipif(ASAN is None or _library("libubsan.so") is None, reason="gcc has no sanitizers here"),
    pytest.mark.skipif(not HEADERS.exists(), reason="Python's headers are not installed"),
    pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD is Linux's"),
]


def built(text: str, folder: Path) -> Path:
    source, library = folder / "_native.c", folder / "_native.so"
    source.write_text(text, encoding="utf-8")
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-g", "-O1"]
    subprocess.run(
        [str(GCC), *flags, "-shared", "-fPIC", f"-I{HEADERS.parent}", str(source), "-o", str(library)], check=True
    )
    return library


def run(library: Path, seed: int, rounds: int) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        # Each object is then memory of its own, with forbidden ground around it.
        "PYTHONMALLOC": "malloc",
        "LD_PRELOAD": str(ASAN),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    program = [sys.executable, "-m", "tests.unit.native.hostile", str(library), str(seed), str(rounds)]
    return subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=1500)


def test_hostile_bytes_touch_nothing_that_is_not_theirs(tmp_path: Path) -> None:
    found = run(built(SOURCE.read_text(encoding="utf-8"), tmp_path), 1, ROUNDS)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith(f"{ROUNDS} rounds, of which ")


MISSING = {
    "length of a field": ("if (length > cursor->end - cursor->at)", "if (0)", "AddressSanitizer"),
    "end of a number": ("if (cursor->at >= cursor->end)", "if (0)", "AddressSanitizer"),
    "room in a batch": ("if (more <= output->capacity - output->used)", "if (1)", "AddressSanitizer"),
    "limit that is far below": ("(limit < output->used || ", "(", "signed integer overflow"),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_check_that_is_missing_is_noticed(name: str, tmp_path: Path) -> None:
    right, wrong, complaint = MISSING[name]
    text = SOURCE.read_text(encoding="utf-8")
    assert text.count(right) == 1
    found = run(built(text.replace(right, wrong), tmp_path), 1, ROUNDS)
    assert found.returncode != 0
    assert complaint in found.stderr
