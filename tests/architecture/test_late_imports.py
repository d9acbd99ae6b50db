"""What a consumer does not import, and packages whose names are imported late."""

import ast
import importlib
from pathlib import Path

import pytest

from tests.architecture.tree import SOURCE, python_files
from tests.support.programs import output_of

# Modules that only a command line, a rare option, a log event, a subscription or a leader needs.
LATE = (
    "bokeh",
    "cattrs",
    "click",
    "coopgroup.reading",
    "coopgroup.core.assignors",
    "coopgroup.core.leader",
    "coopgroup.core.policies",
    "coopgroup.core.telemetry.ledger",
    "coopgroup.kafka.membership.deciding",
    "importlib.metadata",
    "kafka.admin",
    "kafka.consumer.group",
    "kafka.net.connection",
    "kafka.producer",
    "kafka.protocol.admin.topics",
    "kafka.protocol.api_message",
    "kafka.record",
    "rich",
    "structlog",
)


def _late_modules() -> list[Path]:
    return [path for path in python_files("src") if "= late_names(" in path.read_text()]


def _typed_names(tree: ast.Module) -> set[tuple[str, str]]:
    """Return (module, name) of the imports that type checkers see."""
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    return {
        (node.module or "", alias.name)
        for node in blocks[0].body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _late_names(tree: ast.Module) -> set[tuple[str, str]]:
    """Return (module, name) of the names that a program gets on first use."""
    [call] = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "late_names"
    ]
    homes = ast.literal_eval(call.args[1])
    return {(home, name) for home, names in homes.items() for name in names}


@pytest.mark.parametrize(
    "path", _late_modules(), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_late_names_are_the_public_names_that_type_checkers_see(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert _late_names(tree) == _typed_names(tree)
    place = path.parent if path.name == "__init__.py" else path.with_suffix("")
    module = importlib.import_module(".".join(place.relative_to(SOURCE.parent).parts))
    assert set(module.__all__) - {"__version__"} == {name for _, name in _late_names(tree)}
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_consumer_imports_only_what_it_needs() -> None:
    program = (
        "import sys\n"
        "from coopgroup import CooperativeConsumer\n"
        "consumer = CooperativeConsumer(\n"
        "    {'bootstrap.servers': '127.0.0.1:1', 'group.id': 'g', 'log_level': 0}\n"
        ")\n"
        "loaded = sorted(sys.modules)\n"
        "consumer.close()\n"
        "print(*loaded)\n"
    )
    loaded = set(output_of(program).split())
    assert "coopgroup.kafka.consumer" in loaded
    assert sorted(loaded.intersection(LATE)) == []


def test_subscribing_thread_imports_what_the_threads_of_the_consumer_need() -> None:
    """A child inherits the lock of a module that another thread imports during the fork."""
    program = (
        "import sys, threading\n"
        "from coopgroup import CooperativeConsumer\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        found.append((threading.current_thread().name, name))\n"
        "found = []\n"
        "sys.meta_path.insert(0, Finder())\n"
        "consumer = CooperativeConsumer(\n"
        "    {'bootstrap.servers': '127.0.0.1:1', 'group.id': 'g', 'log_level': 0}\n"
        ")\n"
        "consumer.subscribe(['t'])\n"
        "consumer.poll(1.0)\n"
        "ours = [one for one in found if one[1].startswith(('coopgroup.', 'kafka.'))]\n"
        "consumer.close()\n"
        "print(*(f'{name}:{thread}' for thread, name in ours))\n"
    )
    imported = [one.split(":") for one in output_of(program).split()]
    assert "kafka.net.connection" in {name for name, _ in imported}
    assert [one for one in imported if one[1] != "MainThread"] == []
