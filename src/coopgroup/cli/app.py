"""The `coopgroup` program: its commands and its exit status.

A command is a module of this package with the same name (`-` becomes `_`) and a `click.Command`
called `command`. It is imported when it runs. So the list of commands needs no Kafka client and no
extra. `COMMANDS` repeats the first line of each command's help; a test compares them.

An error that a user can correct (an unknown option, a missing file, a wrong configuration, an extra
that is not installed) gives one line on standard error and exit status 2. Any other error that
coopgroup reports gives status 1. Output that cannot be written, such as to a full disk, gives one
line and status 74. A reader that closed the pipe needs no line; the status is 141.
"""

import errno
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Final, NoReturn

import click

from coopgroup import __version__
from coopgroup.errors import ConfigurationError, CoopgroupError, MissingExtraError
from coopgroup.printable import printable

COMMANDS = {
    "compare": "Play a scenario with several policies and compare what they cost.",
    "consume": "Print the records of topics and show the rebalances of the group.",
    "demo": "Play joins, exits and a crash of a group on a real broker.",
    "group": "Look at a running group, and say how it moves to coopgroup.",
    "pipeline": "Read the history of running groups, and learn from it.",
    "plan": "Answer what a leader would do, one JSON object a line.",
    "protocol": "Encode and decode the embedded messages, one JSON object a line.",
    "report": "Draw what happened to a group, from telemetry files of its members.",
    "setup": "Create the topics that members use for themselves, unless they exist.",
    "simulate": "Play a scenario and measure what it costs.",
    "sweep": "Play a grid of scenarios and settings on Spark.",
    "telemetry": "Read the topic that members write their telemetry to.",
    "watch": "Show members, owners, lags and moves of GROUP, of any client, all the time.",
}

_EXIT_ERROR = 1
_EXIT_USAGE = 2
_SUMMARY_MAX = 200
# It imports the module of a `module:Class`.
_RESOLVER: Final = "coopgroup.core.model.named_factories"
_EXIT_UNWRITTEN = 74  # EX_IOERR of sysexits.h
_UNWRITABLE: Final = {errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC, errno.EROFS}
_EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells do
_EXIT_PIPE_CLOSED = 141  # 128 + SIGPIPE


class PlainGroup(click.Group):
    """A click group that lists whole summaries, and suggests a near name for an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name.

        Raises:
            UsageError: there is no such command.
        """
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-"):
            near = get_close_matches(args[0], names, n=1)
            more = f" Did you mean '{near[0]}'?" if near else f" There are {', '.join(names)}."
            raise click.UsageError(f"No such command '{args[0]}'.{more}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands with their whole first sentences."""
        with formatter.section("Commands"):
            formatter.write_dl(self.summaries(ctx))

    def summaries(self, ctx: click.Context) -> list[tuple[str, str]]:
        """Return name and summary of each command."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        return [
            (name, command.get_short_help_str(limit=_SUMMARY_MAX))
            for name, command in found
            if command is not None
        ]


class LazyGroup(PlainGroup):
    """A click group that imports a command on first use."""

    def __init__(
        self,
        *,
        abouts: Mapping[str, str],
        home_of: Callable[[str], tuple[str, str]],
        **named: Any,  # noqa: ANN401 - click's own
    ) -> None:
        super().__init__(**named)
        self._abouts = abouts
        self._home_of = home_of

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all commands without importing them."""
        return sorted(self._abouts)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import the command `cmd_name`; return None for an unknown name."""
        if cmd_name not in self._abouts:
            return None
        module, variable = self._home_of(cmd_name)
        command: click.Command = getattr(importlib.import_module(module), variable)
        return command

    def summaries(self, ctx: click.Context) -> list[tuple[str, str]]:  # noqa: ARG002 - as above
        """Return name and summary of each command without importing any."""
        return sorted(self._abouts.items())


def _home_of(name: str) -> tuple[str, str]:
    return f"coopgroup.cli.{name.replace('-', '_')}", "command"


@click.command(
    cls=LazyGroup,
    abouts=COMMANDS,
    home_of=_home_of,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="coopgroup")
def app() -> None:
    """Incremental cooperative rebalancing for Kafka consumer groups."""


class OwnModules(MetaPathFinder):
    """Finds modules of one folder, for policies and assignors that are given as `module:Class`.

    Such a module, and the modules that it imports, may be in the folder. No other import looks
    there: a file of that name must not take the place of an extra that is not installed.

    Args:
        folder: the working directory.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._found: set[str] = set()

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the spec of a module of the folder; None for imports that do not look there."""
        asking = _importing_module()
        if path is not None or (
            asking != _RESOLVER and asking.partition(".")[0] not in self._found
        ):
            return None
        spec = PathFinder.find_spec(fullname, [self._folder], target)
        if spec is not None:
            self._found.add(fullname)
        return spec


def _importing_module() -> str:
    """Return the name of the module that imports another one at this moment."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - a finder gets no other hint
    while frame is not None:
        name: str = frame.f_globals.get("__name__", "")
        if "importlib" not in name.partition(".")[0]:
            return name
        frame = frame.f_back
    return ""


def find_own_modules() -> None:
    """Let policies and assignors that are given as `module:Class` be in the working directory."""
    if not sys.flags.safe_path:
        with suppress(OSError):  # the working directory may be deleted
            sys.meta_path.append(OwnModules(str(Path.cwd())))


def main() -> NoReturn:
    """Run the program with the arguments of the process and exit.

    Raises:
        SystemExit: always, with the status described at the top of this module.
    """
    find_own_modules()
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line, without the program's name; return the exit status."""
    if sys.stdout is None:
        return _complain("standard output cannot be written: it is closed", status=_EXIT_UNWRITTEN)
    output = sys.stdout
    try:
        status = _run(arguments)
        output.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError) and error.errno not in _UNWRITABLE:
            raise
        return _write_no_more(error)
    except SystemExit as error:
        # At a closed pipe, click replaces the output and exits, and rich exits.
        if sys.stdout is output and not isinstance(error.__context__, BrokenPipeError):
            raise
        return _write_no_more(BrokenPipeError(errno.EPIPE, "closed"))
    return status


def _run(arguments: list[str]) -> int:
    _give_home()
    try:
        status = app.main(args=arguments, prog_name="coopgroup", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return _EXIT_USAGE
    except click.Abort:
        return _EXIT_INTERRUPTED
    except (click.ClickException, CoopgroupError) as error:
        is_usage = isinstance(error, click.ClickException | ConfigurationError | MissingExtraError)
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        return _complain(message, status=_EXIT_USAGE if is_usage else _EXIT_ERROR)
    return status if isinstance(status, int) else 0


def _give_home() -> None:
    """Give a user without a home the root folder, as containers do: libraries look into it."""
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/"


def _write_no_more(error: OSError) -> int:
    """Drop what standard output still holds: the interpreter would fail to write it at its end."""
    with suppress(OSError, ValueError):  # standard output may be no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno == errno.EPIPE:
        return _EXIT_PIPE_CLOSED
    place = error.filename or "standard output"
    return _complain(f"{place} cannot be written: {error.strerror}", status=_EXIT_UNWRITTEN)


def _complain(message: str, *, status: int) -> int:
    with suppress(OSError):  # standard error may be closed or full, too
        click.echo(f"coopgroup: {printable(' '.join(message.split()))}", err=True)
    return status
