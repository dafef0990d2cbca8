"""The `trivet` command: verbs only. Each imports what it needs when it runs.

Exit codes: 0 fine, 1 a finding, 2 wrong usage or config, or a model that is not there, 130 after
Ctrl-C (of servers: 0, once they have drained).
"""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trivet.errors import CacheError, ConfigError, EmbedderError
from trivet.eval.commands import eval_group
from trivet.middleware.deployment_doctor.commands import doctor
from trivet.middleware.first_steps.commands import completion, init_command
from trivet.middleware.prefix_commands.commands import prefix_group
from trivet.middleware.prefix_commands.warm_commands import warm
from trivet.prefix.engine.commands import engine_group
from trivet.terminal import say, say_json

if TYPE_CHECKING:
    from trivet.middleware.running.engine_process import EngineCommand

FINDING, USAGE = 1, 2
INTERRUPTED = 130
"""As shells have it: 128 and the signal's number."""

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")


class _Told(click.Group):
    """Errors that Trivet raises on purpose become a sentence and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):
            # A prompt turns Ctrl-C into Abort. The terminal shows `^C` in the same line.
            say("\ninterrupted", err=True)
            sys.exit(INTERRUPTED)
        except ConfigError as error:
            for problem in error.problems:
                say(f"error: {problem}", err=True)
            sys.exit(USAGE)
        except CacheError as error:
            say(f"error: {error}", err=True)
            # Without its model a command measured nothing, so it has found nothing either.
            sys.exit(USAGE if isinstance(error, EmbedderError) else FINDING)
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("trivet"):
                raise
            # Where Trivet is installed, from a clone or a wheel, pip adds what this names.
            extra = "pip install 'trivet[semantic,report]'"
            say(f"error: {error.name} is not installed: {extra}", err=True)
            sys.exit(USAGE)


@click.group(cls=_Told, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="trivet", prog_name="trivet")
def main() -> None:
    """Trivet: the three-tier cache between an LLM app and its model."""


@main.command()
@click.option("--upstream", "upstreams", multiple=True, metavar="URL", help="With or without /v1.")
@click.option(
    "--config", "config_file", type=click.Path(path_type=Path), help="Server config file."
)
@click.option(
    "--engine", metavar="PATH_OR_NAME", help="Run an engine with this model too, and ask it."
)
@click.option("--engine-port", type=click.IntRange(0, 65535), default=0, help="[default: port + 2]")
@click.option(
    "--engine-options", default="", metavar="TEXT", help="Options of `trivet engine serve`."
)
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="[default: 8080]")
@click.option("--admin-host", help="[default: 127.0.0.1]")
@click.option("--admin-port", type=click.IntRange(0, 65535), help="[default: port + 1]")
@click.option("--policies", type=click.Path(path_type=Path), help="Directory of policy files.")
@click.option("--store", metavar="URL", help="memory | sqlite:PATH | redis://HOST:PORT/DB")
@click.option("--workers", type=click.IntRange(1, 64), help="Worker processes.  [default: 1]")
@click.option("--log-requests", is_flag=True, default=None, help="One log line per request.")
@click.option("--log-format", type=click.Choice(["console", "json"]))
def serve(upstreams: tuple[str, ...], config_file: Path | None, **flags: Any) -> None:
    """Run the proxy in front of one or more upstreams.

    SIGTERM lets open answers end; SIGHUP reads the policies again, at once.
    """
    # Until there is something to reload it must not end the process.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from trivet.middleware.running.run import serve as run

    flags["store.url"] = flags.pop("store")
    run(config_file, upstreams, flags, _engine_of(flags))


_ENGINE_OWN = {
    "--model": "the model is given to --engine itself.",
    "--port": "the port is given by --engine-port.",
    "--host": "the engine listens on 127.0.0.1, where the proxy reaches it.",
}
"""Options of `engine serve` that `serve` has settled."""


def _engine_of(flags: dict[str, Any]) -> EngineCommand | None:
    model, port, options = (flags.pop(name) for name in ("engine", "engine_port", "engine_options"))
    if model is None:
        if port or options:
            raise click.UsageError("--engine-port and --engine-options go with --engine.")
        return None
    from trivet.middleware.running.engine_process import EngineCommand

    try:
        words = tuple(shlex.split(options))
    except ValueError as error:
        raise click.UsageError(f"--engine-options: {error}") from None
    for word in words:
        name = word.partition("=")[0]
        if name in _ENGINE_OWN:
            raise click.UsageError(f"--engine-options: {_ENGINE_OWN[name]}")
    return EngineCommand(model, port, words)


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=9000, show_default=True)
@click.option("--delay-ms", type=click.IntRange(0), default=0, show_default=True)
@click.option(
    "--as",
    "provider",
    type=click.Choice(["anthropic", "openai", "gemini", "bedrock", "deepseek"]),
    help="Simulate this provider's API, prompt cache and errors.",
)
def upstream(host: str, port: int, delay_ms: int, provider: str | None) -> None:
    """Run the built-in upstream for tests and trials. It is not a model.

    A request can ask it to misbehave: the header `x-mock: delay=200; status=503`, or a model named
    `mock+delay=200`. GET / lists the commands. The header `baggage: mock=status%3D503` does the
    same and is in no cache key: it shows what a proxy does with a question that it has answered.

    With --as it is a simulator: usage says what the provider's documented prompt cache would have
    read and written, and what the provider rejects gets its 400. Tokens are estimated. The header
    `x-mock: at=3600` (or `advance=300`) moves the clock by which prefixes expire.
    """
    from trivet.middleware.mock_upstream.run import run

    run(host, port, delay_ms, provider=provider)


@main.command()
@click.argument("directory", required=False, type=click.Path(path_type=Path))
@click.option(
    "--config", "config_file", type=click.Path(path_type=Path), help="A server config too."
)
@click.option("--schema", is_flag=True, help="Print the JSON Schema of policy files for editors.")
@as_json
def check(directory: Path | None, config_file: Path | None, schema: bool, as_json: bool) -> None:
    """Validate the policy files in DIRECTORY."""
    from trivet.middleware.explain import inspect

    if schema:
        say(inspect.schema())
    elif directory is None and config_file is None:
        raise click.UsageError("Give the DIRECTORY of the policy files.")
    else:
        sys.exit(inspect.check(directory, config_file, as_json=as_json))


@main.command()
@click.argument("request_file", type=click.Path(path_type=Path))
@click.option("--policies", type=click.Path(path_type=Path), help="Directory of policy files.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="Server config file: its upstreams, and its policies without --policies.",
)
@click.option("--tenant", help="Explain as this tenant, without its credential.")
@click.option("--admin", metavar="URL", help="Ask the running proxy behind this admin port.")
@click.option("--admin-key", envvar="TRIVET_ADMIN_KEY", help="[env: TRIVET_ADMIN_KEY]")
@as_json
def explain(
    request_file: Path, admin: str | None, admin_key: str | None, as_json: bool, **given: Any
) -> None:
    """Say what would happen to the request in REQUEST_FILE, and why."""
    from trivet.middleware.explain import inspect

    if admin is not None:
        if any(given.values()):
            raise click.UsageError(
                "--admin asks the proxy: leave --policies, --config and --tenant out."
            )
        sys.exit(inspect.explain_running(request_file, admin, admin_key, as_json=as_json))
    sys.exit(inspect.explain(request_file, as_json=as_json, **given))


@main.command()
@as_json
def keygen(as_json: bool) -> None:
    """Make an API key, and the SHA-256 to put into a policy file."""
    from trivet.policies.keygen import new_key

    made = new_key()
    key, digest = made.key, made.sha256
    if as_json:
        say_json({"key": key, "sha256": digest})
        return
    say(f"key:     {key}")
    say(f"sha256:  {digest}")
    say("Give the key to the caller; it is not kept. Put the sha256 into the policy file:")
    say(f"  credentials:\n    - sha256: {digest}")


@main.command()
@click.option("--tenant", required=True)
@click.option("--tag", help="Only answers whose request carried this Trivet-Tag.")
@click.option("--version", "version", metavar="NAME=VALUE", help="Only answers of this version.")
@click.option("--key", metavar="HEX", help="Only this answer (key by trivet explain --admin).")
@click.option("--admin", default="http://127.0.0.1:8081", show_default=True, metavar="URL")
@click.option("--admin-key", envvar="TRIVET_ADMIN_KEY", help="[env: TRIVET_ADMIN_KEY]")
@as_json
def purge(tenant: str, admin: str, admin_key: str | None, as_json: bool, **which: Any) -> None:
    """Forget stored answers of a tenant in every process of a running proxy."""
    from trivet.middleware.admin.client import AdminClient
    from trivet.progress import busy

    if sum(value is not None for value in which.values()) > 1:
        raise click.UsageError("Give one of --tag, --version and --key, or none of them.")
    if "=" not in (which["version"] or "="):
        raise click.UsageError("--version: give NAME=VALUE, as in --version prompt=7.")
    with busy("purging"):
        count = AdminClient(admin, admin_key).purge(tenant, **which)
    if as_json:
        say_json({"purged": count})
    else:
        answers = "1 stored answer" if count == 1 else f"{count} stored answers"
        say(f"{answers} of {tenant} deleted{_why_none(which) if count == 0 else ''}.")


def _why_none(which: Mapping[str, str | None]) -> str:
    if which["key"] is not None:
        return (
            ": the key may be of another secret or policy (`trivet explain --admin` prints the one "
            "that the proxy uses)"
        )
    return "" if any(which.values()) else ": no tenant of that name has any here"


main.add_command(init_command)
main.add_command(doctor)
main.add_command(completion)
main.add_command(engine_group)
main.add_command(eval_group)
main.add_command(prefix_group)
main.add_command(warm)

if __name__ == "__main__":
    main()
