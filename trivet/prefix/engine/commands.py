"""`trivet engine`: what the commands are called and told."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click


class Size(click.ParamType[int]):
    """Bytes, written `4096`, `512MiB` or `2GiB`."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """See click."""
        from trivet.prefix.engine.amounts import size

        try:
            return value if isinstance(value, int) else size(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.group("engine")
def engine_group() -> None:
    """Serve a model of your own, with a prefix cache for each tenant."""


@engine_group.command("serve")
@click.option(
    "--model",
    default="smollm2",
    show_default=True,
    metavar="PATH_OR_NAME",
    help="A Hugging Face folder or hub name, a GGUF file, or smollm2.",
)
@click.option("--served-model-name", "names", multiple=True, help="A further name for requests.")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=9100, show_default=True)
@click.option(
    "--kv-memory",
    type=Size(),
    default="2GiB",
    show_default=True,
    help="For the KV of running and cached prompts.",
)
@click.option(
    "--tenant-quota",
    "tenant_quotas",
    multiple=True,
    metavar="[TENANT=]AMOUNT",
    help="The most of it that a tenant holds, as 50% or 1GiB: of each, or of one by name.",
)
@click.option(
    "--tenant-floor",
    "tenant_floors",
    multiple=True,
    metavar="TENANT=AMOUNT",
    help="What others leave a tenant of it.",
)
@click.option(
    "--platform-prefix",
    "platform_files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A system prompt whose KV all tenants share on purpose, and that stays.",
)
@click.option("--block-size", type=click.IntRange(1, 1024), default=16, show_default=True)
@click.option("--host-memory", type=Size(), default="0", help="For KV that no longer fits.")
@click.option(
    "--disk-memory", type=Size(), default="0", help="For KV that the host has no room for."
)
@click.option(
    "--disk-folder",
    type=click.Path(path_type=Path),
    help="Where that lies.  [default: a temporary folder]",
)
@click.option(
    "--determinism",
    type=click.Choice(["bitwise"]),
    help="Equal logits with a warm and a cold cache, to the bit. Slower.",
)
@click.option("--max-running", type=click.IntRange(1), default=32, show_default=True)
@click.option("--max-waiting", type=click.IntRange(1), default=1024, show_default=True)
@click.option("--max-waiting-per-tenant", type=click.IntRange(1), default=256, show_default=True)
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True, help="On the CPU.")
@click.option(
    "--dtype",
    type=click.Choice(["auto", "fp32", "bf16", "fp16"]),
    default="auto",
    show_default=True,
)
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1 ...")
@click.option(
    "--deadline",
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds that a request may take.",
)
@click.option(
    "--drain", type=click.FloatRange(min=0), default=30.0, show_default=True,
    help="Seconds that SIGTERM waits for open answers.",
)  # fmt: skip
@click.option(
    "--secret-file",
    type=click.Path(path_type=Path),
    help="Secret shared with the proxy that signs tenants.  [or env: TRIVET_ENGINE_SECRET]",
)
@click.option(
    "--signed-only",
    is_flag=True,
    help="Serve requests that the proxy signed, and no others; /metrics for the secret as bearer.",
)
@click.option("--log-format", type=click.Choice(["console", "json"]), default="console")
@click.option("--fd", type=int, hidden=True)
@click.option("--parent", type=int, hidden=True)
def engine_serve(determinism: Literal["bitwise"] | None, **options: Any) -> None:
    """Serve a model behind the APIs of OpenAI and Anthropic."""
    from trivet.prefix.engine.serving import ServeOptions, run

    run(ServeOptions(determinism=determinism or "", **options))


@engine_group.command("bench")
@click.option("--model", default="smollm2", show_default=True, metavar="PATH_OR_NAME")
@click.option("--kv-memory", type=Size(), default="1GiB", show_default=True)
@click.option("--block-size", type=click.IntRange(1, 1024), default=16, show_default=True)
@click.option("--determinism", type=click.Choice(["bitwise"]), help="To see what it costs.")
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True, help="On the CPU.")
@click.option("--dtype", type=click.Choice(["auto", "fp32", "bf16", "fp16"]), default="auto")
@click.option("--device", default="auto", show_default=True)
@click.option(
    "--prefix", type=click.IntRange(1), default=2048, show_default=True, help="Tokens shared."
)
@click.option(
    "--tail", type=click.IntRange(1), default=64, show_default=True, help="Tokens behind them."
)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def engine_bench(determinism: Literal["bitwise"] | None, **options: Any) -> None:
    """Measure what the prefix cache saves with a model on this machine."""
    from trivet.prefix.engine.bench_command import BenchOptions, run

    run(BenchOptions(determinism=determinism or "", **options))
