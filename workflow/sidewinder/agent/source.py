"""The agent's source: all modules of this package joined into the one text that is shipped to a device.

The controller alone runs this module. Modules are joined in the order of their imports; imports between them go, since
after joining every name is in the same place.
"""

from __future__ import annotations

import ast
import hashlib
import re
from functools import lru_cache
from importlib import resources
from typing import Any, NamedTuple

import sidewinder

ENTRY = "main"

# One constant command for every shell: no quote, backslash, `!` or newline inside. The source comes on stdin.
BOOTSTRAP = (
    'import sys;f=open(0,"rb",0,closefd=False);n=int(f.readline());s=b"";'
    'exec("while len(s)<n:s+=f.read(n-len(s)) or sys.exit(66)");exec(compile(s,"agent","exec"))'
)
PYTHON_FLAGS = ("-I", "-S", "-u")

_INNER_IMPORT = re.compile(r"^\s+from \.", re.MULTILINE)


def read_module(name: str) -> str:
    return resources.files("sidewinder.agent").joinpath(f"{name}.py").read_text(encoding="utf-8")


def _is_type_checking(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == "TYPE_CHECKING" for target in node.targets)
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


class Stripped(NamedTuple):
    """A module without its imports of sisters and without what only type checkers read."""

    text: str
    sisters: list[str]  # in the order of their imports
    names: set[str]  # defined at its top


def strip_imports(source: str, name: str) -> Stripped:
    """An import inside a function becomes ``pass``: by the time it is called everything is there."""
    tree = ast.parse(source, feature_version=(3, 7))
    lines = source.splitlines()
    sisters: list[str] = []
    hidden = [node for node in tree.body if _is_type_checking(node)]
    if ast.get_docstring(tree) is not None:
        hidden.append(tree.body[0])
    drop: list[tuple[ast.stmt, str]] = [(node, "") for node in hidden]
    names: set[str] = set()
    for node in tree.body:
        if node in hidden:
            continue
        if isinstance(node, ast.ImportFrom) and node.level:
            sisters.append(_sister(node, name))
            drop.append((node, ""))
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
            if _INNER_IMPORT.search("\n".join(lines[node.lineno - 1 : node.end_lineno])):  # else not worth a walk
                for inner in ast.walk(node):
                    if isinstance(inner, ast.ImportFrom) and inner.level:
                        _sister(inner, name)
                        drop.append((inner, "pass"))
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update(target.id for target in targets if isinstance(target, ast.Name))
    for node, instead in drop:
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        indent = lines[first][: node.col_offset]
        lines[first] = f"{indent}{instead}" if instead else ""
        for number in range(first + 1, last + 1):
            lines[number] = ""
    return Stripped("\n".join(lines) + "\n", sisters, names)


def _sister(node: ast.ImportFrom, name: str) -> str:
    if node.level != 1 or node.module is None or any(alias.asname for alias in node.names):
        raise ValueError(f"{name}.py line {node.lineno}: import sisters as `from .module import name`")
    return node.module


@lru_cache(maxsize=1)
def modules() -> dict[str, str]:
    """The stripped modules in the order of their imports. ValueError when two of them define the same name."""
    parts: dict[str, str] = {}
    owner: dict[str, str] = {}
    pending: set[str] = set()

    def take(name: str) -> None:
        if name in parts or name in pending:  # a circle: both sides import lazily or only use the other when called
            return
        pending.add(name)
        stripped = strip_imports(read_module(name), name)
        for sister in stripped.sisters:
            take(sister)
        for defined in stripped.names:
            if defined in owner:
                raise ValueError(f"{defined} is defined in agent/{owner[defined]}.py and agent/{name}.py")
            owner[defined] = name
        parts[name] = stripped.text

    take(ENTRY)
    return parts


@lru_cache(maxsize=1)
def build() -> str:
    """The one source, without the call that starts it: data, and a loop that compiles it part by part.

    Compiled in one go the agent would need 8 MB more on the device for ever: the heap never shrinks again. Line numbers
    and names in tracebacks stay those of the modules.
    """
    listed = ",\n".join(f"({name!r}, {text!r})" for name, text in modules().items())
    return (
        f"MODULES = [\n{listed}\n]\n"
        "while MODULES:\n"
        "    name, text = MODULES.pop(0)\n"
        '    exec(compile(text, "agent/" + name + ".py", "exec", 0, False, 2), globals())\n'
    )


@lru_cache(maxsize=1)
def version() -> str:
    """Version of the program and, behind ``+``, of the agent's very text."""
    return f"{sidewinder.__version__}+{hashlib.sha256(build().encode()).hexdigest()[:12]}"


def shipment(nonce: str, *, state_dir: str | None = None, **more: Any) -> bytes:
    """What is written to the bootstrap command's stdin before the first frame."""
    options = {"nonce": nonce, "version": version(), "state_dir": state_dir, **more}
    source = f"{build()}run_agent({options!r})\n".encode()
    return b"%d\n" % len(source) + source
