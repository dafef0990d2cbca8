"""`trivet init`: a policy file and a server config that work as they are."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trivet.errors import ConfigError, Problem
from trivet.middleware.first_steps.asking import own_key
from trivet.middleware.first_steps.templates import Answers, config_text, policy_text
from trivet.middleware.running.config import server_config
from trivet.policies.keygen import new_key
from trivet.policies.loader import load

CONFIG, POLICIES = "trivet.yaml", "policies"


@dataclass(frozen=True, slots=True)
class Made:
    """What was written; `key` is the new key, None where the callers keep theirs."""

    policy: Path
    config: Path
    config_kept: bool
    """A server config was there and was not touched."""
    key: str | None
    port: int
    """Of the proxy under that config."""


def init(folder: Path, answers: Answers, *, force: bool) -> Made:
    """Write `policies/TENANT.yaml` and `trivet.yaml` in `folder`.

    A policy that is there is replaced with `force` only, and so is a server config, which is kept
    otherwise. All of it is valid at the end, or nothing was changed. Raises `ConfigError` and
    `click.UsageError`.
    """
    config = folder / CONFIG
    kept = config.exists() and not force
    policies = _policies_beside(config, answers) if kept else folder / POLICIES
    policy = policies / f"{answers.tenant}.yaml"
    if not force and policy.exists():
        raise _refused(policy, "is there already: give --force to replace it, or another --tenant")
    made = None if answers.whose == "own" else new_key()
    sha256 = own_key(answers.key_env) if made is None else made.sha256
    writing = Writing()
    try:
        writing.write(policy, policy_text(answers, sha256))
        if not kept:
            writing.write(config, config_text(answers))
        server = server_config(config, {})
        load(policy.parent, [one.name for one in server.upstreams])
    except BaseException:
        writing.undo()
        raise
    return Made(policy, config, kept, None if made is None else made.key, server.port)


def _policies_beside(config: Path, answers: Answers) -> Path:
    """Where the policies of a server config are that is kept, and is to serve the tenant too."""
    server, wanted = server_config(config, {}), answers.provider.base_url.removesuffix("/v1")
    if server.policies is None:
        raise _refused(config, "names no policies: add `policies: policies` to it, or give --force")
    upstream = next((one for one in server.upstreams if one.root == wanted), None)
    if upstream is None:
        told = f"has no upstream {wanted}: add it, or give --force to replace the file"
        raise _refused(config, told)
    if answers.whose == "new" and answers.key_env and upstream.credential_env is None:
        told = (
            f"gives the upstream {upstream.name} no key: add `credential_env: {answers.key_env}`, "
            "for a new key is never sent on"
        )
        raise _refused(config, told)
    return server.policies


class Writing:
    """Files that are written together, or not at all."""

    def __init__(self) -> None:
        self._before: list[tuple[Path, bytes | None, int]] = []
        self._folders: list[Path] = []

    def write(self, path: Path, text: str) -> None:
        """Write a file whole. Raises `ConfigError` where that cannot be done."""
        try:
            self._make_folder(path.parent)
            before = path.read_bytes() if path.exists() else None
            mode = 0o644 if before is None else stat.S_IMODE(path.stat().st_mode)
            handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(text)
                os.chmod(draft, mode)
                self._before.append((path, before, mode))
                os.replace(draft, path)
            finally:
                Path(draft).unlink(missing_ok=True)
        except OSError as error:
            raise _refused(path, f"cannot be written: {error.strerror}") from None

    def undo(self) -> None:
        """Put back what was there before."""
        for path, before, mode in reversed(self._before):
            with suppress(OSError):
                if before is None:
                    path.unlink(missing_ok=True)
                else:
                    path.write_bytes(before)
                    path.chmod(mode)
        for folder in reversed(self._folders):
            with suppress(OSError):
                folder.rmdir()

    def _make_folder(self, folder: Path) -> None:
        if folder.exists():
            return
        self._make_folder(folder.parent)
        folder.mkdir()
        self._folders.append(folder)


def _refused(path: Path, message: str) -> ConfigError:
    return ConfigError(Problem(str(path), 0, 0, "", message))
