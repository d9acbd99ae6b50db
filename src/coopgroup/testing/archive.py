"""An archive of Kafka's loaded classes, which makes every later start of a broker cheaper.

Java (JEP 350) can write at its exit what it has loaded and verified, and map that file at its next
start. For a broker that means 1.2 s instead of 2.1 s, and 174 MB instead of 236 MB. The archive
belongs to the paths of the jars and to one build of Java, both of which Java checks by itself: one
that does not fit is ignored. So the archive is a gift, never a need: if it cannot be made, an
empty file says so and brokers start without.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from pathlib import Path
from typing import Final

from coopgroup.testing import admin
from coopgroup.testing.brokers import Broker, Started, add_brokers, launch
from coopgroup.testing.errors import ClusterError
from coopgroup.testing.maven import KafkaRuntime, cache_lock
from coopgroup.testing.processes import Reaper, is_listening, make_folder

__all__ = ["archive_options", "ensure_class_archive"]

TRAINING_TIMEOUT_S: Final = 60.0
EXIT_TIMEOUT_MS: Final = 60_000


def archive_options(runtime: KafkaRuntime) -> tuple[str, ...]:
    """Options of a Java that is to use the archive; none if there is no archive."""
    path = archive_path(runtime)
    if not path.exists() or path.stat().st_size == 0:
        return ()
    return (f"-XX:SharedArchiveFile={path}", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error")


def archive_path(runtime: KafkaRuntime) -> Path:
    """Where the archive is kept: beside the jars, one for each Java that is installed."""
    java = Path(runtime.java).resolve()
    digest = hashlib.sha256(f"{java}:{java.stat().st_mtime_ns}".encode()).hexdigest()[:12]
    return runtime.folder / f"classes-{digest}.jsa"


def ensure_class_archive(runtime: KafkaRuntime, java_options: tuple[str, ...]) -> None:
    """Make the archive if nobody has tried yet; takes some 7 s then.

    Args:
        runtime: Kafka's jars.
        java_options: options that brokers will have.
    """
    final = archive_path(runtime)
    if final.exists():
        return
    # A cache that may only be read, as on a build server, is no reason to fail.
    with contextlib.suppress(OSError), cache_lock(runtime.folder):
        if not final.exists():  # another process may have been first
            make_archive(runtime, java_options, final)


def make_archive(runtime: KafkaRuntime, java_options: tuple[str, ...], final: Path) -> None:
    """Train a broker of its own and publish what it leaves; called with the lock held."""
    folder = make_folder(None, 1)
    started = Started(runtime=runtime, folder=folder, reaper=Reaper(folder))
    made = folder / "classes.jsa"
    try:
        add_brokers(started, 1, None, {})
        try:
            train(started, (*java_options, f"-XX:ArchiveClassesAtExit={made}"))
        except ClusterError:
            made.unlink(missing_ok=True)
        publish(made, final)
    finally:
        started.remove()


def train(started: Started, java_options: tuple[str, ...]) -> None:
    """Run a broker through what every test needs, and let it end in good order.

    Raises:
        ClusterError: it did not come up, answer or end.
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
    """Whether waiting for a broker is over.

    Raises:
        ClusterError: it has ended.
    """
    if not broker.is_running:
        raise ClusterError("the training broker has ended")
    return is_listening(broker.address.internal_port) and admin.sees_brokers(
        broker.address.internal_bootstrap, frozenset({1})
    )


def publish(made: Path, final: Path) -> None:
    """Put the archive, or an empty file if there is none, in place by one rename."""
    building = final.with_name(f"{final.name}.building")  # the lock is held: nobody else writes it
    if made.exists():
        shutil.copyfile(made, building)
    else:
        building.touch()
    building.rename(final)
