"""The shipped deployments: valid by their schemas, and of one piece with what Trivet reads."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema_rs
import pytest
import yaml

from trivet.middleware.running.config import ServerConfig, server_config
from trivet.policies.loader import load

DEPLOY = Path(__file__).parent.parent / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
DOCUMENTS: list[tuple[str, Any]] = [
    (file.stem, document)
    for file in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(file.read_text())
]
MANIFESTS = [
    pytest.param(document, id=f"{file}-{document['kind']}-{document['metadata']['name']}")
    for file, document in DOCUMENTS
]
FLAGS = ("--enable-prefix-caching", "--enable-prompt-tokens-details")


def named(kind: str, name: str) -> Any:
    return next(
        one for _, one in DOCUMENTS if (one["kind"], one["metadata"]["name"]) == (kind, name)
    )


def in_kubernetes(tmp_path: Path) -> ServerConfig:
    file = tmp_path / "trivet.yaml"
    file.write_text(named("ConfigMap", "trivet")["data"]["trivet.yaml"])
    return server_config(file, {})


def check_vllm(arguments: list[str], config: ServerConfig) -> None:
    """The flags that the prefix tier needs, and the port that the config listens to."""
    assert set(FLAGS) <= set(arguments)
    assert "--prefix-caching-hash-algo=sha256" in arguments
    given = next(one for one in arguments if one.startswith("--kv-events-config="))
    events = json.loads(given.partition("=")[2])
    assert (events["enable_kv_cache_events"], events["publisher"]) == (True, "zmq")
    port = urlsplit(events["endpoint"].replace("*", "host")).port
    upstream = config.upstreams[0]
    assert upstream.cache == "vllm"
    assert upstream.credential_env == "VLLM_API_KEY"
    for replica in upstream.replicas:
        assert replica.kv_events is not None
        told, asked = urlsplit(replica.kv_events), urlsplit(replica.url)
        assert (told.port, told.hostname) == (port, asked.hostname)


def test_the_compose_file_is_one_by_the_compose_specification() -> None:
    package = Path(import_module("check_jsonschema").__file__ or "").parent
    schema = next(package.rglob("compose-spec.json")).read_text()
    jsonschema_rs.validator_for(json.loads(schema)).validate(COMPOSE)


def test_what_the_compose_file_names_is_there() -> None:
    services = COMPOSE["services"]
    for service in services.values():
        assert set(service.get("depends_on", {})) <= services.keys()
        assert set(service["networks"]) <= COMPOSE["networks"].keys()
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            here = source.startswith(".")
            assert (DEPLOY / source).exists() if here else source in COMPOSE["volumes"], source
    assert (DEPLOY / services["proxy-0"]["build"]["dockerfile"].removeprefix("deploy/")).exists()


def test_the_composed_proxy_reaches_servers_that_are_composed() -> None:
    config = server_config(DEPLOY / "trivet.yaml", {})
    services = COMPOSE["services"]
    hosts = [urlsplit(one.url).hostname for one in config.upstreams[0].replicas]
    assert hosts == ["vllm-0", "vllm-1"]
    for host in hosts:
        assert host is not None
        check_vllm(services[host]["command"], config)
    assert urlsplit(config.store.url).hostname in services


def test_callers_reach_nothing_but_proxies() -> None:
    published = {name for name, one in COMPOSE["services"].items() if "ports" in one}
    assert published == {"proxy-0", "proxy-1"}
    assert COMPOSE["networks"]["inside"]["internal"] is True
    assert COMPOSE["services"]["redis"]["networks"] == ["inside"]


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_a_manifest_is_valid_by_kubernetes_own_schema(manifest: Any) -> None:
    kubernetes: Any = import_module("kubernetes_validate")
    kubernetes.validate(manifest, kubernetes.latest_version(), strict=True)
    assert manifest["metadata"]["namespace"] == "trivet"


def test_the_manifests_selectors_and_volumes_fit_together() -> None:
    for _, manifest in DOCUMENTS:
        if manifest["kind"] in ("Deployment", "StatefulSet"):
            spec = manifest["spec"]
            pod = spec["template"]
            assert spec["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
            claims = {one["metadata"]["name"] for one in spec.get("volumeClaimTemplates", [])}
            volumes = claims | {one["name"] for one in pod["spec"].get("volumes", [])}
            for container in pod["spec"]["containers"]:
                mounts = {one["name"] for one in container.get("volumeMounts", [])}
                assert mounts <= volumes


def test_the_proxy_in_kubernetes_reaches_each_server_by_its_name(tmp_path: Path) -> None:
    config = in_kubernetes(tmp_path)
    vllm = named("StatefulSet", "vllm")["spec"]
    hosts = [urlsplit(one.url).hostname for one in config.upstreams[0].replicas]
    assert hosts == [f"vllm-{number}.vllm" for number in range(vllm["replicas"])]
    check_vllm(vllm["template"]["spec"]["containers"][0]["args"], config)
    ports = {one["port"] for one in named("Service", "vllm")["spec"]["ports"]}
    assert {urlsplit(one.url).port for one in config.upstreams[0].replicas} <= ports


def test_both_deployments_have_one_config(tmp_path: Path) -> None:
    composed = server_config(DEPLOY / "trivet.yaml", {}).model_dump_json()
    kubernetes = in_kubernetes(tmp_path).model_dump_json()
    for number in (0, 1):
        kubernetes = kubernetes.replace(f"vllm-{number}.vllm", f"vllm-{number}")
    assert json.loads(kubernetes) | {"policies": ""} == json.loads(composed) | {"policies": ""}


def test_a_pod_lives_longer_than_its_answers_may_take_to_end() -> None:
    config = server_config(DEPLOY / "trivet.yaml", {})
    pod = named("Deployment", "trivet")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] >= config.drain + 10
    assert COMPOSE["services"]["proxy-0"]["stop_grace_period"] == "45s"


def test_the_shipped_policies_are_valid(tmp_path: Path) -> None:
    for name, text in named("ConfigMap", "trivet-policies")["data"].items():
        (tmp_path / name).write_text(text)
    for folder in (tmp_path, DEPLOY / "policies"):
        assert "example" in load(folder).tenants


def test_the_images_files_are_in_the_repository() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    own = [line for line in lines if line.startswith("COPY") and "--from" not in line]
    for line in own:
        for name in line.split()[1:-1]:
            assert (DEPLOY.parent / name).exists(), name


def test_the_shipped_redis_evicts_nothing_that_guards_the_answers() -> None:
    """Trivet refuses an `allkeys-*` policy, which may forget what was purged."""
    composed = COMPOSE["services"]["redis"]["command"]
    pod = named("StatefulSet", "redis")["spec"]["template"]["spec"]
    for command in (composed, pod["containers"][0]["args"]):
        assert command[command.index("--maxmemory-policy") + 1] == "volatile-lru"
