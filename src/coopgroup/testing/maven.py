"""Kafka's jars: fetched once from Maven Central, then kept in a cache folder of the user.

Theory of operation. `fetch_kafka` names a folder after the Kafka version and the hash of
`kafka-pom.xml`. If it is there, that is all. Otherwise, under a file lock that every process of
this user takes, the jars are copied into a temporary sibling and the bootstrap checkpoint is made
there, and one rename puts the folder in place: a folder with the final name is always complete,
whatever was killed when.

The bootstrap checkpoint is what `kafka-storage format` writes for a new KRaft cluster: the feature
levels (`group.version=1` among them, without which KIP-848 groups are refused). It names neither
cluster nor node, so one copy serves every cluster and saves a Java start at each of them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import attrs
from attrs import field, frozen

from coopgroup.testing.errors import KafkaFetchError, ToolMissingError
from coopgroup.testing.releases import KAFKA_VERSION, KafkaRelease, read_release

__all__ = ["KAFKA_VERSION", "KafkaRuntime", "fetch_kafka", "kafka_runtime_path"]

FETCH_TIMEOUT_S = 600
FORMAT_TIMEOUT_S = 60
REASON_LENGTH_MAX = 300
OTHER_LOG_BINDINGS = ("slf4j-log4j12-*.jar", "slf4j-reload4j-*.jar")

# The storage tool wants a whole configuration; of this one only the roles matter to what it writes.
FORMAT_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:1
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
listeners=PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:1
log.dirs={log_dir}
"""


@frozen(kw_only=True)
class KafkaRuntime:
    """A Kafka ready to be started.

    Attributes:
        java: path of the `java` program.
        folder: cache folder that holds `jars` and, for KRaft, `bootstrap.checkpoint`.
        release: of Kafka.
    """

    java: str
    folder: Path
    release: KafkaRelease = field(factory=lambda: read_release(KAFKA_VERSION))

    @property
    def classpath(self) -> str:
        """Every jar, as an argument of `java -cp`."""
        return f"{self.folder / 'jars'}/*"

    @property
    def bootstrap_checkpoint(self) -> Path:
        """Snapshot with the feature levels that a new cluster begins with."""
        return self.folder / "bootstrap.checkpoint"


def fetch_kafka(version: str = KAFKA_VERSION) -> KafkaRuntime:
    """Give the cached Kafka; fetch it first if it is not there.

    Raises:
        ConfigurationError: there is no such release.
        ToolMissingError: no Java, or no Maven while the jars are not in the cache.
        KafkaFetchError: Maven or the making of the bootstrap checkpoint failed.
    """
    java = find_java()
    release = read_release(version)
    runtime = KafkaRuntime(java=java, folder=kafka_runtime_path(release), release=release)
    if runtime.folder.is_dir():
        return runtime
    maven = find_program("mvn", "Maven (mvn)", "apt-get install maven")
    try:
        with cache_lock(runtime.folder):
            if not runtime.folder.is_dir():  # another process may have been first
                build_runtime(runtime, maven)
    except OSError as error:
        raise KafkaFetchError(f"the cache of Kafka's jars cannot be written: {error}") from error
    return runtime


def kafka_runtime_path(release: KafkaRelease | None = None) -> Path:
    """Folder of the jars: below COOPGROUP_CACHE_DIR, else XDG_CACHE_HOME, else ~/.cache."""
    release = release or read_release(KAFKA_VERSION)
    digest = hashlib.sha256(pom_of(release)).hexdigest()[:12]
    return cache_root() / f"kafka-{release.version}-{digest}"


def cache_root() -> Path:
    """Folder of everything that coopgroup keeps between runs."""
    own = os.environ.get("COOPGROUP_CACHE_DIR")
    if own:
        return Path(own).absolute()
    # The XDG base directory specification: a relative path is invalid and must be ignored.
    shared = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(shared) if shared.startswith("/") else Path.home() / ".cache"
    return root / "coopgroup"


def pom_bytes() -> bytes:
    """Text of the pom, which is package data, for the release of all tests that name none."""
    return resources.files("coopgroup.testing").joinpath("kafka-pom.xml").read_bytes()


def pom_of(release: KafkaRelease) -> bytes:
    """Text of the pom for a release."""
    text = pom_bytes().decode()
    for artifact, version in (
        ("kafka_2.13", release.version),
        ("kafka-tools", release.tools_version),
    ):
        head = f"<artifactId>{artifact}</artifactId>\n      <version>"
        text = text.replace(f"{head}{KAFKA_VERSION}<", f"{head}{version}<")
    return text.encode()


def find_java() -> str:
    """Path of `java`: that of JAVA_HOME, else the first of the PATH.

    Raises:
        ToolMissingError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        candidate = Path(home) / "bin" / "java"
        if os.access(candidate, os.X_OK):
            return str(candidate)
    return find_program("java", "Java (java)", "apt-get install openjdk-17-jre-headless")


def find_program(name: str, title: str, remedy: str) -> str:
    """Path of a program of the PATH.

    Raises:
        ToolMissingError: it is not on the PATH.
    """
    path = shutil.which(name)
    if path is None:
        raise ToolMissingError(title, remedy)
    return path


@contextmanager
def cache_lock(folder: Path) -> Iterator[None]:
    """Hold the lock that belongs to a cache folder; the kernel drops it with the process."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build_runtime(runtime: KafkaRuntime, maven: str) -> None:
    """Fetch the jars and make the bootstrap checkpoint; called with the lock held.

    Raises:
        KafkaFetchError: a program failed or took too long.
    """
    final = runtime.folder
    # Whoever holds the lock is alone: what an earlier, killed build left behind may go.
    for stale in sorted(final.parent.glob(f"{final.name}.building-*")):
        shutil.rmtree(stale, ignore_errors=True)
    building = Path(tempfile.mkdtemp(prefix=f"{final.name}.building-", dir=final.parent))
    try:
        copy_jars(maven, building, runtime.release)
        if runtime.release.is_kraft:
            make_bootstrap_checkpoint(attrs.evolve(runtime, folder=building))
        building.chmod(0o755)
        building.rename(final)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def copy_jars(maven: str, folder: Path, release: KafkaRelease) -> None:
    """Let Maven copy the pom's dependencies into `folder/jars`.

    Releases before 4.0 bring a binding of slf4j to log4j 1, which wants a configuration file and
    would compete with the pom's own binding.

    Raises:
        KafkaFetchError: Maven failed; the message has its reason.
    """
    pom = folder / "pom.xml"
    pom.write_bytes(pom_of(release))
    command = [
        *(maven, "--batch-mode", "--quiet", "-Dstyle.color=never", "--file", str(pom)),
        *("dependency:copy-dependencies", "-DincludeScope=runtime"),
        f"-DoutputDirectory={folder / 'jars'}",
    ]
    run_step(command, "Maven could not fetch Kafka's jars", FETCH_TIMEOUT_S)
    for pattern in OTHER_LOG_BINDINGS:
        for binding in sorted((folder / "jars").glob(pattern)):
            binding.unlink()


def make_bootstrap_checkpoint(runtime: KafkaRuntime) -> None:
    """Let Kafka's own StorageTool write `bootstrap.checkpoint`.

    Raises:
        KafkaFetchError: the tool failed; the message has its reason.
    """
    log_dir = runtime.folder / "formatted"
    properties = runtime.folder / "format.properties"
    properties.write_text(FORMAT_PROPERTIES.format(log_dir=log_dir))
    command = [
        *(runtime.java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        *("-cp", runtime.classpath, "kafka.tools.StorageTool", "format"),
        *("--cluster-id", "AAAAAAAAAAAAAAAAAAAAAQ", "--config", str(properties)),
    ]
    run_step(command, "Kafka's storage tool failed (Java 17 or newer?)", FORMAT_TIMEOUT_S)
    (log_dir / runtime.release.checkpoint_path).rename(runtime.bootstrap_checkpoint)
    shutil.rmtree(log_dir)
    properties.unlink()


def run_step(command: list[str], complaint: str, timeout_s: float) -> None:
    """Run one program of the build.

    Raises:
        KafkaFetchError: it failed or took too long; one line that begins with the complaint.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise KafkaFetchError(f"{complaint}: no end after {timeout_s:g} s") from error
    if done.returncode != 0:
        failure = KafkaFetchError(f"{complaint}: {telling_line(done.stdout)}")
        failure.add_note(done.stdout[-4000:])
        raise failure


def telling_line(output: str) -> str:
    """The first line of a program's output that names an error, else its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "ERROR" in line or "Exception" in line or "Error" in line]
    telling = (errors or lines[-1:] or ["no output"])[0]
    return telling.removeprefix("[ERROR]").strip()[:REASON_LENGTH_MAX]
