"""The rules of a tidy tree, as functions over text that return what is wrong.

They never touch a file, so that each is shown to work on a made-up bad snippet. `test_tidy` applies them to the tree.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 400
PARAGRAPH_WORDS_MIN = 6

# Put together here, so that this file does not contain what it looks for.
UNFINISHED_WORDS = ("TO" + "DO", "FIX" + "ME", "X" * 3)
REGISTRY_HOSTS = tuple(
    ".".join(labels)
    for labels in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("anaconda", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("crates", "io"),
        ("rubygems", "org"),
        ("maven", "apache", "org"),
        ("maven", "org"),
        ("proxy", "golang", "org"),
    )
)
_UNFINISHED = re.compile(rf"\b(?:{'|'.join(UNFINISHED_WORDS)})\b")
_HOST = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, REGISTRY_HOSTS))})(?![\w-])", re.IGNORECASE)
_MACHINE_PATH = re.compile(r"(?<![\w.~})-])/(?:work|root)/")
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_DECISION = re.compile(r"(\d+)-[a-z0-9]+(?:-[a-z0-9]+)*\.md")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def file_size(text: str) -> int:
    return len(text.splitlines())


def function_sizes(text: str) -> dict[str, int]:
    """Lines of each function's body, without docstring, by qualified name; of two with one name the longer counts."""
    sizes: dict[str, int] = {}
    for name, function in _functions(ast.parse(text), ""):
        sizes[name] = max(sizes.get(name, 0), _body_lines(function))
    return sizes


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        inner = prefix
        if isinstance(child, Function | ast.ClassDef):
            inner = f"{prefix}{child.name}."
        if isinstance(child, Function):
            yield f"{prefix}{child.name}", child
        yield from _functions(child, inner)


def _body_lines(function: Function) -> int:
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if not body:
        return 0
    return (body[-1].end_lineno or body[-1].lineno) - body[0].lineno + 1


def ratchet(sizes: Mapping[str, int], limit: int, tolerated: Mapping[str, int]) -> list[str]:
    """What is longer than `limit`. `tolerated` are old sinners with their size: they may only shrink, as the table."""
    problems: list[str] = []
    for name, size in sizes.items():
        allowed = tolerated.get(name, limit)
        if size > max(allowed, limit):
            problems.append(f"{name} has {size} lines, at most {max(allowed, limit)} are allowed: split it")
        elif name in tolerated and size <= limit:
            problems.append(f"{name} has {size} lines and is no sinner any more: remove it from the table")
        elif name in tolerated and size < allowed:
            problems.append(f"{name} has shrunk to {size} lines: lower its {allowed} in the table")
    problems.extend(f"{name} is gone: remove it from the table" for name in tolerated if name not in sizes)
    return problems


def first_paragraph_problems(text: str) -> list[str]:
    """A module begins with a paragraph that says what it is for; an empty file needs none."""
    if not text.strip():
        return []
    paragraph = (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0]
    if len(paragraph.split()) < PARAGRAPH_WORDS_MIN:
        return [f"begins with {paragraph!r} and not with a paragraph that says what the module is for"]
    return []


def title_problems(text: str) -> list[str]:
    """A document has exactly one `# ` title; what stands in a fenced block is no title."""
    titles, fenced = [], False
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and line.startswith("# "):
            titles.append(line)
    return [] if len(titles) == 1 else [f"has {len(titles)} titles instead of one: {titles}"]


def banned_word_problems(text: str) -> list[str]:
    """Marks of unfinished work, package registries, places on the machine where this was written."""
    problems: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        for pattern, reason in (
            (_UNFINISHED, "finish it or write an issue"),
            (_HOST, "which registry to use is the user's configuration"),
            (_MACHINE_PATH, "exists on one machine only"),
        ):
            problems.extend(f"line {number}: {match.group()!r}: {reason}" for match in pattern.finditer(line))
    return problems


def unseeded_random_problems(text: str) -> list[str]:
    """`Random()` without a seed is a clock in disguise."""
    return [
        f"line {node.lineno}: Random() without a seed"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and _called_name(node) == "Random" and not node.args and not node.keywords
    ]


def fail_point_problems(names: Iterable[str], sources: Mapping[str, str]) -> list[str]:
    """Every declared fail point is reached somewhere, and every one that is reached is declared."""
    declared = list(names)
    problems = [f"{name} is declared {declared.count(name)} times" for name in {*declared} if declared.count(name) > 1]
    reached: dict[str, str] = {}
    for path, text in sources.items():
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call) or _called_name(node) != "reach":
                continue
            argument = node.args[0] if node.args else None
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                reached[argument.value] = f"{path}:{node.lineno}"
            else:
                problems.append(f"{path}:{node.lineno}: reach() needs the name of the fail point as a literal")
    problems.extend(f"{name} is declared and never reached" for name in declared if name not in reached)
    problems.extend(
        f"{place}: {name} is reached and not declared" for name, place in reached.items() if name not in declared
    )
    return sorted(problems)


def _called_name(call: ast.Call) -> str | None:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None


def dead_module_problems(modules: Mapping[str, str], users: Iterable[str], entry_points: Iterable[str]) -> list[str]:
    """Modules (name to text) that no other module, no text in `users` and no entry point refers to.

    A string that is the name of a module, alone or before a colon, refers to it: lazy imports and `python -m` do so.
    """
    referred = {*entry_points}
    for name, text in modules.items():
        referred |= _references(text) - {name}
    for text in users:
        referred |= _references(text)
    packages = {name.rpartition(".")[0] for name in modules if name in referred}
    return [
        f"{name} is imported by nothing"
        for name, text in modules.items()
        if text.strip() and name not in referred and not _is_inside(name, packages) and not name.endswith("__main__")
    ]


def _is_inside(name: str, packages: Iterable[str]) -> bool:
    """Whether importing one of `packages` runs the module `name`, which is then a package's `__init__`."""
    return any(package == name or package.startswith(f"{name}.") for package in packages)


def _references(text: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=names):
                found.update(alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                found.add(module)
                found.update(f"{module}.{alias.name}" for alias in names)
            case ast.Constant(value=str(value)):
                found.add(value.partition(":")[0])
    return found


def numbering_problems(file_names: Iterable[str]) -> list[str]:
    """Decision records are called `0001-some-words.md` and numbered from 1 without gaps."""
    problems: list[str] = []
    numbers: list[int] = []
    for file_name in sorted(file_names):
        match = _DECISION.fullmatch(file_name)
        if match is None:
            problems.append(f"{file_name} is not called like 0001-some-words.md")
        else:
            numbers.append(int(match[1]))
    if numbers != list(range(1, len(numbers) + 1)):
        problems.append(f"the numbers are {numbers} and not 1 to {len(numbers)}")
    return problems
