"""The command line: `quernel demo`, `compile`, `conform`, `devices`, `doctor`, `cache`, `records` and more."""

from __future__ import annotations

import errno
import os
import sys
from typing import NoReturn

import click

__all__ = ["main"]


class _LazyGroup(click.Group):
    """A group whose commands are imported when they are named, so that `quernel --help` stays quick."""

    _COMMANDS = (
        ("backends", "quernel.cli.inspection:backends", "List backends, the broken ones with their reason."),
        ("cache", "quernel.cli.cache:cache", "Look at, check and empty the store."),
        ("compile", "quernel.cli.compile:compile_kernel", "Compile a kernel for a target; no device is needed."),
        ("conform", "quernel.cli.conform:conform", "Run the conformance kit on a backend."),
        ("demo", "quernel.cli.demo:demo", "Run kernels on a picture and show what was compiled."),
        ("devices", "quernel.cli.inspection:devices", "List the devices of every backend."),
        ("doctor", "quernel.cli.doctor:doctor", "Check the installation and say how to mend it."),
        ("new-backend", "quernel.cli.new_backend:new_backend", "Write the package of a new backend, to start from."),
        ("records", "quernel.cli.records:records", "Look at what was compiled, when, where and why."),
    )

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, _, _ in self._COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for name, path, _ in self._COMMANDS:
            if name == cmd_name:
                import importlib

                module, attribute = path.split(":")
                command: click.Command = getattr(importlib.import_module(module), attribute)
                return command
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, _, text in self._COMMANDS])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="quernel", prog_name="quernel")
def _root() -> None:
    """Write a kernel once in Python; compile, cache and launch it on any device."""


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line. Exit status 0 only when what was asked for happened."""
    from quernel.errors import QuernelError

    try:
        status = _root.main(args=arguments, prog_name="quernel", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except QuernelError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
    except OSError as error:
        _leave_broken_output(error)
    sys.exit(status if isinstance(status, int) else 0)


def _leave_broken_output(error: OSError) -> NoReturn:
    """Ends where what is printed has nowhere to go: a closed pipe quietly, a full disk with its reason."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 — the interpreter flushes it at exit
    if error.errno not in (errno.EPIPE, errno.ENOSPC):
        raise error
    if error.errno == errno.ENOSPC:
        click.echo(f"Error: cannot print: {error.strerror}", err=True)
    sys.exit(1)
