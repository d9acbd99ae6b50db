"""Public modules: the names of `import coopgroup`, and the imports that readers are shown."""

import ast
import doctest
import importlib
from collections.abc import Iterator

import pytest
from markdown_it import MarkdownIt

import coopgroup
from tests.architecture.tree import ROOT, name_in_tree, python_files
from tests.support.programs import output_of

PUBLIC = {
    "coopgroup",
    "coopgroup.aio",
    "coopgroup.assignors",
    "coopgroup.health",
    "coopgroup.integrations.faststream",
    "coopgroup.metrics",
    "coopgroup.pipeline.views",
    "coopgroup.policies",
    "coopgroup.processing",
    "coopgroup.protocol",
    "coopgroup.report",
    "coopgroup.simulator",
    "coopgroup.telemetry",
    "coopgroup.testing",
}
REFERENCE = ROOT / "docs" / "reference" / "api.md"


def _shown_programs() -> Iterator[tuple[str, str]]:
    """Yield (file, program) for each program in README, docs and examples."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for token in MarkdownIt().parse(page.read_text()):
            kind = token.info.split(" ")[0]
            if kind in {"python", "{testcode}"}:
                yield name_in_tree(page), token.content
            elif kind == "{doctest}":
                yield name_in_tree(page), _program_of(token.content)
    for path in (*python_files("examples"), ROOT / "tests" / "typing" / "api.py"):
        yield name_in_tree(path), path.read_text()


def _program_of(session: str) -> str:
    return "".join(one.source for one in doctest.DocTestParser().get_examples(session))


def _imports(program: str) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of each import of coopgroup; the name is "" for a whole module."""
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import):
            yield from ((one.name, "") for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from ((node.module, one.name) for one in node.names)


def _private(module: str, name: str) -> bool:
    if module.partition(".")[0] != "coopgroup":
        return False
    if module not in PUBLIC:
        return True
    return bool(name) and name not in importlib.import_module(module).__all__


def test_programs_for_readers_import_only_public_names() -> None:
    programs = list(_shown_programs())
    found = [(file, *one) for file, program in programs for one in _imports(program)]
    assert len([file for file, module, _ in found if module in PUBLIC]) > 20
    assert [one for one in found if _private(*one[1:])] == []


def test_reference_names_exactly_the_public_modules() -> None:
    sentence = REFERENCE.read_text().partition("These modules are public:")[2].partition("\n")[0]
    named = {name for name in sentence.split("`")[1::2] if name.startswith("coopgroup")}
    assert named == PUBLIC | {"coopgroup.testing.plugin"}  # pytest imports the plugin, by name


def test_public_module_is_documented(subtests: pytest.Subtests) -> None:
    for module in sorted(PUBLIC):
        with subtests.test(module=module):
            pages = [page.read_text() for page in sorted((ROOT / "docs").rglob("*.md"))]
            assert len([page for page in pages if f".. automodule:: {module}\n" in page]) == 1


def test_public_name_is_that_of_its_home(subtests: pytest.Subtests) -> None:
    """Each name is the same object as in its module, and dir() lists it."""
    for name in coopgroup.__all__:
        with subtests.test(name=name):
            assert name in dir(coopgroup)
            if name != "__version__":
                public = getattr(coopgroup, name)
                assert getattr(importlib.import_module(public.__module__), name) is public


def test_import_when_no_name_is_used_imports_no_dependency() -> None:
    """`import coopgroup` alone must not import a Kafka client or NumPy."""
    program = (
        "import sys\n"
        "import coopgroup\n"
        "heavy = {'attr', 'confluent_kafka', 'kafka', 'numpy', 'pyspark'}\n"
        "print(sorted(heavy & sys.modules.keys()))\n"
    )
    assert output_of(program) == "[]\n"
