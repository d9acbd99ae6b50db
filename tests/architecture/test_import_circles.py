"""No module imports itself through others, so each module can be read after its imports.

Imports for type checkers count as well: a reader follows them, too.
"""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.architecture.tree import SOURCE, python_files


def _name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def imports_of(sources: dict[str, str]) -> dict[str, set[str]]:
    """Return the modules that each module imports, from the sources by name."""
    imports = {}
    for name, source in sources.items():
        found = {
            f"{node.module}.{one.name}" if f"{node.module}.{one.name}" in sources else node.module
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.ImportFrom) and node.module is not None
            for one in node.names
        }
        imports[name] = found & sources.keys()
    return imports


def circle_in(imports: dict[str, set[str]]) -> list[str]:
    """Return one circle, its first module also last; empty if there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself_through_others() -> None:
    imports = imports_of({_name(path): path.read_text() for path in python_files("src")})
    assert len(imports) > 300
    assert sum(map(len, imports.values())) > 1000
    assert circle_in(imports) == []
