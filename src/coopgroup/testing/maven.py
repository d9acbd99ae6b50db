"""Kafka's jars: downloaded once from Maven Central, then kept in a cache folder of the user.

`fetch_kafka` derives a folder name from the Kafka version and the hash of `kafka-pom.xml`. If this
folder exists, it is complete. Otherwise the process takes a file lock that all processes of this
user share. It copies the jars into a temporary folder, creates the bootstrap checkpoint there, and
renames the folder in one step. A killed process therefore never leaves an incomplete folder with
the final name.

Maven compares each download with a checksum of the same server, so it notices broken downloads
only. `check_jars` compares the jars with the SHA-256 in `jars.sha256`, which `make jars` renews. A
changed jar is refused, wherever it was changed: on the server, on the way or in Maven's repository.

The bootstrap checkpoint is the file that `kafka-storage format` writes for a new KRaft cluster. It
contains the feature levels, among them `group.version=1`, without which KIP-848 groups are refused.
It is the same for every cluster and node, so one copy saves a Java start for each cluster.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import attrs
from attrs import field, frozen

from coopgroup.errors import KafkaFetchError, ToolMissingError
from coopgroup.testing.releases import KAFKA_VERSION, KafkaRelease, read_release

FETCH_TIMEOUT_S = 600
FORMAT_TIMEOUT_S = 60
REASON_LENGTH_MAX = 300
# Without a version, each release of Maven takes another version of its plugin.
COPY_JARS = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
JARS_LIST = "jars.sha256"
OTHER_LOG_BINDINGS = ("slf4j-log4j12-*.jar", "slf4j-reload4j-*.jar")

# The storage tool requires a whole configuration, but only the roles affect its output.
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
    """A prepared Kafka.

    Attributes:
        folder: cache folder that holds `jars` and `bootstrap.checkpoint`.
    """

    java: str
    folder: Path
    release: KafkaRelease = field(factory=lambda: read_release(KAFKA_VERSION))

    @property
    def classpath(self) -> str:
        """Every jar, as an argument of `java -cp`."""
        return f"{self.jars}/*"

    @property
    def jars(self) -> Path:
        """Folder of the jars."""
        return self.folder / "jars"

    @property
    def bootstrap_checkpoint(self) -> Path:
        """Snapshot with the initial feature levels of a new cluster."""
        return self.folder / "bootstrap.checkpoint"


def fetch_kafka(version: str = KAFKA_VERSION) -> KafkaRuntime:
    """Return the cached Kafka; download it first if it is missing.

    Raises:
        ConfigurationError: unknown release.
        ToolMissingError: Java is missing, or Maven is missing and the cache has no jars.
        KafkaFetchError: Maven or the creation of the bootstrap checkpoint failed.
    """
    runtime = kafka_runtime(read_release(version))

    def build(maven: str, folder: Path) -> None:
        copy_kafka_jars(maven, folder, runtime.release)
        make_bootstrap_checkpoint(attrs.evolve(runtime, folder=folder))

    try:
        build_once(runtime.folder, build)
    except OSError as error:
        raise KafkaFetchError(f"the cache of Kafka's jars cannot be written: {error}") from error
    return runtime


def kafka_runtime(release: KafkaRelease) -> KafkaRuntime:
    """Return the place of a release, which may not have been fetched.

    Raises:
        ToolMissingError: Java is missing.
    """
    return KafkaRuntime(java=find_java(), folder=kafka_runtime_path(release), release=release)


def kafka_runtime_path(release: KafkaRelease | None = None) -> Path:
    """Return the folder of the jars below COOPGROUP_CACHE_DIR, XDG_CACHE_HOME or ~/.cache."""
    release = release or read_release(KAFKA_VERSION)
    digest = hashlib.sha256(pom_of(release)).hexdigest()[:12]
    return cache_root() / f"kafka-{release.version}-{digest}"


def cache_root() -> Path:
    """Return the folder for all files that coopgroup keeps between runs."""
    own = os.environ.get("COOPGROUP_CACHE_DIR")
    if own:
        return Path(own).absolute()
    # The XDG base directory specification: a relative path is invalid and must be ignored.
    shared = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(shared) if shared.startswith("/") else Path.home() / ".cache"
    return root / "coopgroup"


def pom_bytes() -> bytes:
    """Return the packaged pom of the default release."""
    return resources.files("coopgroup.testing").joinpath("kafka-pom.xml").read_bytes()


def pom_of(release: KafkaRelease) -> bytes:
    """Return the pom of a release."""
    text = pom_bytes().decode()
    for artifact, version in (
        ("kafka_2.13", release.version),
        ("kafka-tools", release.tools_version),
    ):
        head = f"<artifactId>{artifact}</artifactId>\n      <version>"
        text = text.replace(f"{head}{KAFKA_VERSION}<", f"{head}{version}<")
    return text.encode()


def find_java() -> str:
    """Return the path of `java` in JAVA_HOME, else on the PATH.

    Raises:
        ToolMissingError: Java is not installed.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        candidate = Path(home) / "bin" / "java"
        if os.access(candidate, os.X_OK):
            return str(candidate)
    return find_program("java", "Java (java)", "apt-get install openjdk-17-jre-headless")


def find_program(name: str, title: str, remedy: str) -> str:
    """Return the path of a program on the PATH.

    Raises:
        ToolMissingError: the program is not on the PATH.
    """
    path = shutil.which(name)
    if path is None:
        raise ToolMissingError(title, remedy)
    return path


@contextmanager
def cache_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a cache folder; the kernel releases it if the process ends."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build_once(final: Path, build: Callable[[str, Path], None]) -> None:
    """Create a folder of the cache, unless it exists.

    Args:
        final: the folder. It gets its name when it is complete.
        build: fills an empty folder, and receives the path of Maven and the folder.

    Raises:
        KafkaFetchError: a program failed or took too long.
        OSError: the cache cannot be written.
        ToolMissingError: Maven is missing.
    """
    if final.is_dir():
        return
    maven = find_program("mvn", "Maven (mvn)", "apt-get install maven")
    with cache_lock(final):
        if final.is_dir():  # another process may have been first
            return
        # The lock excludes other builds, so these folders come from killed builds.
        for stale in sorted(final.parent.glob(f"{final.name}.building-*")):
            shutil.rmtree(stale, ignore_errors=True)
        building = Path(tempfile.mkdtemp(prefix=f"{final.name}.building-", dir=final.parent))
        try:
            build(maven, building)
            building.chmod(0o755)
            building.rename(final)
        finally:
            shutil.rmtree(building, ignore_errors=True)


def copy_jars(
    maven: str, pom: bytes, jars: Path, complaint: str, *, only_listed: bool = True
) -> None:
    """Let Maven copy the dependencies of a pom, and check the copies.

    Args:
        maven: path of Maven.
        pom: the pom.
        jars: folder of the jars.
        complaint: begin of an error message.
        only_listed: whether a jar without a known SHA-256 is refused.

    Raises:
        KafkaFetchError: Maven failed, or a jar is not the expected one.
    """
    download_jars(maven, pom, jars, complaint)
    check_jars(jars, complaint, only_listed=only_listed)


def download_jars(maven: str, pom: bytes, jars: Path, complaint: str) -> None:
    """Let Maven copy the dependencies of a pom; the pom is kept beside them.

    Raises:
        KafkaFetchError: Maven failed; the message contains the reason.
    """
    jars.mkdir(exist_ok=True)
    (jars / "pom.xml").write_bytes(pom)
    command = [
        *(maven, "--batch-mode", "--quiet", "--strict-checksums", "-Dstyle.color=never"),
        *("--file", str(jars / "pom.xml")),
        *(COPY_JARS, "-DincludeScope=runtime", f"-DoutputDirectory={jars}"),
    ]
    run_step(command, complaint, FETCH_TIMEOUT_S)


def listed_jars() -> dict[str, str]:
    """Return the known SHA-256 of each jar, by its file name."""
    text = resources.files("coopgroup.testing").joinpath(JARS_LIST).read_text("ascii")
    return {name: digest for digest, name in (line.split() for line in text.splitlines())}


def check_jars(jars: Path, complaint: str, *, only_listed: bool) -> None:
    """Compare the jars of a folder with their known SHA-256; else as `copy_jars`.

    Raises:
        KafkaFetchError: a jar has another SHA-256, or none is known and one is required.
    """
    known = listed_jars()
    for jar in sorted(one for one in jars.iterdir() if one.suffix.lower() == ".jar"):
        if jar.name not in known:
            if only_listed:
                raise KafkaFetchError(f"{complaint}: {jar.name} is not in the list of known jars")
        elif sha256_of(jar) != known[jar.name]:
            raise KafkaFetchError(
                f"{complaint}: {jar.name} is not the known jar, its SHA-256 differs; "
                "delete it from Maven's local repository and try again"
            )


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy_kafka_jars(maven: str, folder: Path, release: KafkaRelease) -> None:
    """Let Maven copy Kafka's jars into `folder/jars`.

    Releases before 4.0 contain a binding of slf4j to log4j 1, which requires a configuration file
    and conflicts with the pom's own binding.

    Of a release that is not in the list, only the jars that it shares with listed ones are checked.

    Raises:
        KafkaFetchError: Maven failed, or a jar is not the expected one.
    """
    jars = folder / "jars"
    is_listed = f"kafka_2.13-{release.version}.jar" in listed_jars()
    complaint = "Maven could not fetch Kafka's jars"
    copy_jars(maven, pom_of(release), jars, complaint, only_listed=is_listed)
    for pattern in OTHER_LOG_BINDINGS:
        for binding in sorted(jars.glob(pattern)):
            binding.unlink()


def make_bootstrap_checkpoint(runtime: KafkaRuntime) -> None:
    """Create `bootstrap.checkpoint` with Kafka's StorageTool.

    Raises:
        KafkaFetchError: the tool failed; the message contains the reason.
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
        KafkaFetchError: it failed or took too long; the message is one line that begins with
            the complaint.
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
    """Return the first line that names an error, else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "ERROR" in line or "Exception" in line or "Error" in line]
    telling = (errors or lines[-1:] or ["no output"])[0]
    return telling.removeprefix("[ERROR]").strip()[:REASON_LENGTH_MAX]
