"""Whatever stands on the command line, it is done or refused in words: no command ends in what looks like our bug."""

import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidegate.cli.main import main

WORD = "WORD"
COMMANDS = (
    ["run", "--show-config", "--set", f"batch.size={WORD}"],
    ["run", "--show-config", "--set", WORD],
    ["run", "--show-config", "--checkpoint-dir", WORD],
    ["run", "--show-config", "--set", f"state.local_dir={WORD}"],
    ["run", "--show-config", "--checkpoint-interval", WORD],
    ["run", "--show-config", "-p", WORD],
    ["run", "--show-config", "--from-checkpoint", WORD],
    ["run", "--show-config", "--from-savepoint", WORD],
    ["run", "--show-config", f"--fresh={WORD}"],
    ["run", f"/nowhere/{WORD}.py"],
    ["checkpoints", "list", WORD],
    ["checkpoints", "show", WORD, "--checkpoint-dir", WORD],
    ["state", "read", WORD, WORD, "--key", WORD],
    ["state", "list", WORD],
    ["transactions", "list", WORD],
    ["transactions", "abort", WORD, WORD],
    ["stop", WORD],
    ["savepoint", WORD, WORD],
    ["dev-kafka", "--topic", f"{WORD}:x"],
    [WORD],
)
WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=()), max_size=12).filter(
    # What the operating system can hand over: text, and bytes that are none.
    lambda text: not any("\ud800" <= one <= "\udfff" and not "\udc80" <= one <= "\udcff" for one in text)
)


@settings(max_examples=30)
@given(st.sampled_from(COMMANDS), WORDS)
@example(COMMANDS[2], "/a\udcff")
@example(COMMANDS[2], "~nobody-of-that-name/x")
@example(COMMANDS[10], "~nobody-of-that-name/x")
@example(COMMANDS[7], "~nobody-of-that-name/x")
@example(COMMANDS[17], "~nobody-of-that-name/x")
@example(COMMANDS[6], "9" * 5000)
@example(COMMANDS[5], "9" * 5000)
@example(COMMANDS[10], "x" * 5000)
@example(COMMANDS[9], "x" * 5000)
@example(COMMANDS[10], "s3://")
@example(COMMANDS[15], "a:b:" + "9" * 5000 + ":c:0:0")
@example(COMMANDS[1], "=")
def test_no_words_end_in_a_bug(capsys: pytest.CaptureFixture[str], command: list[str], word: str) -> None:
    arguments = [part.replace(WORD, word) for part in command]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    said = capsys.readouterr().err
    assert ended.value.code in (0, 1, 2, 3), said
    assert "bug in Tidegate" not in said, said
    assert "Traceback" not in said, said


def test_a_bug_would_show(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the test above could not fail."""
    monkeypatch.setattr("tidegate.cli.app.render_config", lambda config: 1 / 0)
    with pytest.raises(SystemExit) as ended:
        main(["run", "--show-config"])
    assert ended.value.code == 1
    assert "bug in Tidegate" in capsys.readouterr().err
    assert sys.exc_info() == (None, None, None)
