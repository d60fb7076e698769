"""Bytes that become code: where anything stored or received is unpickled, evaluated or imported by name. Each place is
listed here with whoever may feed it; `docs/security.md` says the same for people."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[3] / "src" / "tidegate"
SECURITY = SOURCE.parents[1] / "docs" / "security.md"

UNPICKLED = {
    "runtime/frames.py:_values": "records from another worker of the same attempt, over the job's own channel",
    "runtime/frames.py:_simple_values": "records from another worker of the same attempt, over the job's own channel",
    "serializers/pickles.py:decode": "state that the program declares pickled(...), from the job's checkpoint folder",
}
EXECUTED = {"deploy/program.py:_import_file": "the program that the user names"}
IMPORTED_BY_NAME = {
    "connectors/kafka/batches/__init__.py:(module)": "aiokafka's compiled codec, by its own name",
    "deploy/program.py:_import_module": "the program that the user names",
    "native.py:_load": "the compiled part of this package",
    "deploy/program.py:load": "the program that the user names",
    "state/keys.py:import_stored": "the factory that a manifest, or the class of keys that a checkpoint names",
    "savepoints/tables.py:dataframe": "pyarrow and pandas, by their own names",
    "state/rocksdb/memory.py:library": "rocksdict, by its own name",
    "testing/conformance/sink.py:test_the_recovery_spec_leads_to_the_same_transactions": "a sink under test",
}
LITERALS = {
    "serializers/spelling.py:_evaluated": "a string or a number within the text of a stored type",
    "savepoints/shapes.py:_default": "the text of a field's default within the text of a stored type",
}
NEVER = ("yaml", "shelve", "marshal", "dill", "cloudpickle", "joblib", "jsonpickle", "xmlrpc", "imp")
"""Modules that run what they read, or may."""


def _name(node: ast.expr) -> str:
    """'pickle.loads' of what is called."""
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _calls() -> dict[str, set[str]]:
    """By what is called, the functions in which it is."""
    found: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and (name := _name(node.func)):
                around = [one for one in functions if one.lineno <= node.lineno <= (one.end_lineno or 0)]
                inner = max(around, key=lambda one: one.lineno).name if around else "(module)"
                found.setdefault(name, set()).add(f"{path.relative_to(SOURCE)}:{inner}")
    return found


CALLS = _calls()


def _places(*names: str) -> set[str]:
    return {place for name, places in CALLS.items() if name.endswith(names) for place in places}


def test_every_place_that_unpickles_is_known() -> None:
    assert _places("pickle.loads", "pickle.load", "Unpickler") == set(UNPICKLED)


def test_every_place_that_executes_is_known() -> None:
    plain = {place for name in ("exec", "eval", "compile") for place in CALLS.get(name, set())}
    assert plain == set(EXECUTED)


def test_every_place_that_imports_by_name_is_known() -> None:
    assert _places("import_module", "__import__") == set(IMPORTED_BY_NAME)


def test_every_place_that_reads_a_python_literal_is_known() -> None:
    assert _places("literal_eval") == set(LITERALS)


def test_nothing_that_runs_what_it_reads_is_imported() -> None:
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.partition(".")[0] for name in names} & set(NEVER), path


def test_numbers_and_arrays_never_bring_pickles_along() -> None:
    for path in sorted(SOURCE.rglob("*.py")):
        assert "allow_pickle" not in path.read_text(), path


def test_the_document_says_of_each_place_where_it_is() -> None:
    text = SECURITY.read_text()
    for place in (*UNPICKLED, *EXECUTED, *IMPORTED_BY_NAME):
        module = place.partition(":")[0]
        if not module.startswith(("savepoints/tables", "state/rocksdb/memory", "testing/")):
            assert module in text, f"docs/security.md does not name {module}"
