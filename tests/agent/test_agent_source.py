"""The shipped source: one text, standard library only, old Pythons in mind."""

from __future__ import annotations

import ast
import sys

import pytest

from sidewinder.agent import source


def test_sister_imports_go_and_the_rest_stays() -> None:
    text, sisters, names = source.strip_imports(
        '"""A thing."""\nimport os\nfrom .a import (\n    b,\n    c,\n)\nTYPE_CHECKING = False\nif TYPE_CHECKING:\n'
        "    from .z import T\n\ndef f():\n    from .d import e\n    return e, os, b, c\n",
        "m",
    )
    assert sisters == ["a"]
    assert names == {"f"}
    tree = ast.parse(text)
    assert [type(node).__name__ for node in tree.body] == ["Import", "FunctionDef"]
    assert "from ." not in text
    assert len(text.splitlines()) == 13  # line numbers in tracebacks stay right


@pytest.mark.parametrize("line", ["from . import a", "from .a import b as c", "from ..errors import X"])
def test_imports_that_cannot_be_joined_are_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"m\.py line 1"):
        source.strip_imports(line + "\n", "m")


def test_two_modules_with_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"main": "from .a import x\ndef x(): pass\n", "a": "def x(): pass\n"}
    monkeypatch.setattr(source, "read_module", texts.__getitem__)
    with pytest.raises(ValueError, match=r"x is defined in agent/a.py and agent/main.py"):
        source.modules.__wrapped__()


def test_every_module_is_shipped_and_imports_the_standard_library_only() -> None:
    import importlib.resources

    here = {
        entry.name[:-3] for entry in importlib.resources.files("sidewinder.agent").iterdir() if entry.name[-3:] == ".py"
    }
    assert set(source.modules()) == here - {"__init__", "source"}
    for name, text in source.modules().items():
        for node in ast.walk(ast.parse(text, feature_version=(3, 6))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [str(node.module)]
            for imported in names:
                assert imported.split(".")[0] in sys.stdlib_module_names, f"{name} imports {imported}"
                assert imported not in {"typing", "subprocess", "shutil", "asyncio"}, f"{name}: {imported} costs memory"


def test_modules_are_joined_after_what_they_use() -> None:
    order = list(source.modules())
    assert order[-1] == "main"
    for name in order:
        sisters = source.strip_imports(source.read_module(name), name).sisters
        assert all(order.index(sister) < order.index(name) for sister in sisters), name


def test_the_bootstrap_is_safe_in_any_shell() -> None:
    assert not set("'\\!\n`$") & set(source.BOOTSTRAP)


def test_version_names_the_very_text() -> None:
    assert source.version() in source.shipment("n").decode()
    assert source.shipment("n").startswith(b"%d\n" % (len(source.shipment("n").split(b"\n", 1)[1])))
