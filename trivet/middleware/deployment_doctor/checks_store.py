"""The store and the secret, judged. Pure."""

from __future__ import annotations

from trivet.exact.redis_secret import RECENT_S
from trivet.middleware.deployment_doctor.facts import RedisFacts, SecretFacts, StoreFacts
from trivet.middleware.deployment_doctor.findings import Finding, fault, ok, warning

_OTHERS = 0o077
_SKEW_S, _WRONG_S = 1.0, 30.0
"""A purge holds for what was made before it, by the clocks of whoever made and purged."""
_SLOW_S = 0.01
"""The default budget of a read is 50 ms."""
_LITTLE_BYTES = 256 << 20
_DAY_S = 86400.0


def check_secret(secret: SecretFacts, store: StoreFacts) -> list[Finding]:
    """Where it comes from, who can read it, whether machines can share it."""
    file = secret.file
    if secret.trouble:
        return [
            fault(
                "secret",
                f"{secret.trouble.rstrip('.')}.",
                "mend it: the proxy does not start with it",
            )
        ]
    if secret.origin == "environment":
        return [ok("secret", "TRIVET_SECRET is set.")]
    if store.kind == "redis":
        told = (
            "TRIVET_SECRET is not set, so each machine makes a secret of its own, and machines do "
            "not read each other's entries."
        )
        remedy = "give all machines one TRIVET_SECRET (`openssl rand -hex 32`)"
        return [warning("secret", told, remedy)]
    if secret.origin == "none":
        return [ok("secret", f"There is none yet: the proxy makes {file.path} when it starts.")]
    return [ok("secret", f"It is in {file.path}, for its owner alone.")]


def check_store(store: StoreFacts, secret: SecretFacts) -> list[Finding]:
    """Whether it can be reached and written, and is read with the right secret."""
    if store.kind == "memory":
        return [ok("store", "Answers are kept in memory: a restart forgets them.")]
    if store.trouble:
        remedy = (
            "start it, or mend the URL, the login or the network; the proxy serves meanwhile, and "
            "caches nothing in it"
            if store.kind == "redis"
            else "move the file away, or name another with --store sqlite:PATH"
        )
        return [
            fault("store", f"{store.shown} cannot be used: {store.trouble.rstrip('.')}.", remedy)
        ]
    found = []
    if store.unwritable:
        said = f"{store.shown} can be read and not written: {store.unwritable.rstrip('.')}."
        remedy = "let the proxy's user write there, and see that it is no replica and not full"
        found.append(fault("store", said, remedy))
    else:
        found.append(ok("store", f"{store.shown} can be read and written{_version(store)}."))
    if store.redis is not None:
        return found + check_redis(store.redis, secret.mark)
    return found + _check_file(store)


def _version(store: StoreFacts) -> str:
    seen = store.redis
    if seen is None:
        return "" if store.file is not None and store.file.mode is not None else " once it is made"
    named = f"; Redis {seen.version}" if seen.version else ""
    return f"{named}; {seen.round_trip_s * 1e3:.1f} ms away"


def _check_file(store: StoreFacts) -> list[Finding]:
    told = []
    file = store.file
    if file is not None and file.mode is not None and file.mode & _OTHERS:
        said = f"{file.path} holds answers, and others than its owner may open it ({file.mode:o})."
        told.append(warning("store", said, f"chmod 600 {file.path}"))
    if store.free_bytes is not None and store.free_bytes < _LITTLE_BYTES:
        said = f"{store.free_bytes >> 20} MiB are free on its disk."
        remedy = "free some, or lower store.max_bytes"
        told.append(warning("store", said, remedy))
    return told


def check_redis(seen: RedisFacts, mark: str | None) -> list[Finding]:
    """What a Redis that answers says of itself."""
    told = [*check_marks(seen, mark), *check_clock("clock of Redis", seen.ahead_s)]
    if seen.evicts:
        said = f"Its maxmemory-policy is {seen.evicts}: it may evict purges, so it is not used."
        remedy = "set maxmemory-policy to noeviction or to one of volatile-*"
        told.append(fault("store", said, remedy))
    if seen.round_trip_s > _SLOW_S:
        said = f"It is {seen.round_trip_s * 1e3:.0f} ms away: each read of it waits that long."
        remedy = "bring it nearer, or raise store.budget (50 ms by default) to a few round trips"
        told.append(warning("store", said, remedy))
    return told


def check_marks(seen: RedisFacts, mark: str | None) -> list[Finding]:
    """Whether the processes that use it have the secret that is here."""
    if mark is None:
        return []
    others = {name: age for name, age in seen.marks.items() if name != mark}
    recent = sorted(name for name, age in others.items() if age < RECENT_S)
    ours = seen.marks.get(mark)
    same_for_all = "give all of them, and this command, one TRIVET_SECRET and one store.encrypt"
    if recent and ours is not None and ours < RECENT_S:
        said = (
            f"Processes with {len(recent) + 1} different secrets use this Redis now: they do not "
            "read each other's entries."
        )
        return [fault("secret", said, same_for_all)]
    if recent:
        said = (
            "The processes that use this Redis have another secret than the one here: entries "
            "written with theirs are not found with it."
        )
        return [fault("secret", said, same_for_all)]
    if ours is None and others:
        days = min(others.values()) / _DAY_S
        said = f"This Redis was used with another secret only, {days:.1f} days ago at the latest."
        remedy = "see that it is meant: what was stored then is not found any more"
        return [warning("secret", said, remedy)]
    if ours is None:
        return [ok("secret", "No process has used this Redis yet.")]
    return [ok("secret", "It is the one that this Redis is used with.")]


def check_clock(check: str, ahead_s: float) -> list[Finding]:
    """How far a clock is from this machine's."""
    off = abs(ahead_s)
    said = f"It is {off:.1f} s {'ahead of' if ahead_s > 0 else 'behind'} this machine's."
    remedy = "run an NTP client on both: purges and lifetimes go by the clocks"
    if off >= _WRONG_S:
        return [fault(check, said, remedy)]
    if off >= _SKEW_S:
        return [warning(check, said, remedy)]
    return [ok(check, said)]
