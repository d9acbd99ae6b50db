"""kafka-python's packages: parts of them without their `__init__`, and all of them on demand."""

import pytest

from tests.support.programs import output_of

LOAD = "import coopgroup.kafka, sys, kafka, kafka.net.selector\n"


def test_submodule_is_imported_without_the_rest() -> None:
    rest = "[one in sys.modules for one in ('kafka.consumer.group', 'kafka.admin')]"
    unknown = "[hasattr(kafka, one) for one in ('nope', '__wrapped__')]"
    assert output_of(f"{LOAD}print({rest}, {unknown})") == "[False, False] [False, False]\n"


def test_program_gets_every_name_of_kafka_python() -> None:
    uses = (
        "kafka.KafkaConsumer",
        "kafka.__version__",
        "kafka.errors.KafkaError",
        "kafka.admin.KafkaAdminClient",
        "kafka.protocol.admin.CreateTopicsRequest",
        "kafka.protocol.consumer.FetchRequest",
    )
    imports = "import kafka.protocol.admin, kafka.protocol.consumer\n"
    assert output_of(f"{LOAD}{imports}print([{', '.join(uses)}] and 'all')") == "all\n"


@pytest.mark.parametrize("package", ["kafka", "kafka.protocol.admin", "kafka.protocol.consumer"])
def test_star_import_is_that_of_kafka_python(package: str) -> None:
    names = f"from {package} import *\nprint(sorted(name for name in dir() if name[0] != '_'))"
    assert output_of(f"import coopgroup.kafka\n{names}") == output_of(
        f"coopgroup = 0\n{names}"  # the same names, without us
    )


def test_package_that_the_program_imported_before_stays() -> None:
    program = "import kafka\nbefore = kafka\nimport coopgroup.kafka, sys\n"
    assert output_of(f"{program}print(type(kafka).__name__, sys.modules['kafka'] is before)") == (
        "module True\n"
    )


def test_kafka_python_prints_no_warning_without_logging() -> None:
    """Python prints warnings of a logger without a handler."""
    program = "import coopgroup.kafka, logging\nprint(logging.getLogger('kafka').hasHandlers())"
    assert output_of(program) == "True\n"
