"""The `init` and `completion` commands. What they do is imported when they run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from trivet.terminal import say, say_json


@click.command("init")
@click.argument("folder", default=".", type=click.Path(path_type=Path, file_okay=False))
@click.option("--upstream", metavar="openai|anthropic|URL", help="The API that your apps call.")
@click.option("--tenant", metavar="NAME", help="The first tenant: an app, a team, a customer.")
@click.option(
    "--key",
    "whose",
    type=click.Choice(["own", "new"]),
    help="What callers send. own: the key that they have, which goes on to the upstream; new: one "
    "made for the tenant, with the provider's in the proxy's environment.",
)
@click.option(
    "--key-env",
    metavar="VARIABLE",
    help="Where the provider's key is.  [default: OPENAI_API_KEY or ANTHROPIC_API_KEY]",
)
@click.option(
    "--sampled",
    type=click.Choice(["bypass", "cache", "pool"]),
    help="Requests that draw their answer at random.  [default: bypass; cache for anthropic]",
)
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True)
@click.option("--force", is_flag=True, help="Replace files that are there.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
def init_command(folder: Path, force: bool, as_json: bool, **flags: Any) -> None:
    """Write a first policy and server config to FOLDER, and say what to change in the app.

    Asks which API, which tenant, and whose key, unless the flags say it. Keys are kept as hashes:
    a new one is shown once.
    """
    from trivet.middleware.first_steps.asking import Given, answers_of
    from trivet.middleware.first_steps.init import init
    from trivet.middleware.first_steps.templates import base_urls, next_steps

    answers = answers_of(Given(**flags))
    made = init(folder, answers, force=force)
    answers = replace(answers, port=made.port)
    if as_json:
        files = [str(made.policy), *([] if made.config_kept else [str(made.config)])]
        say_json({"files": files, "key": made.key, "base_urls": base_urls(answers)})
        return
    say(f"written: {made.policy}")
    if made.config_kept:
        say(f"kept:    {made.config} (it was there; --force replaces it)")
    else:
        say(f"written: {made.config}")
    say("")
    say(next_steps(answers, str(made.config), made.key))


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes `trivet` commands in SHELL.

    \b
    bash:  trivet completion bash > ~/.local/share/bash-completion/completions/trivet
    zsh:   trivet completion zsh > ~/.zfunc/_trivet    (with ~/.zfunc in fpath, before compinit)
    fish:  trivet completion fish > ~/.config/fish/completions/trivet.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    say(kind(ctx.find_root().command, {}, "trivet", "_TRIVET_COMPLETE").source())
