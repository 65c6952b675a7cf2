"""The image, the compose file and the manifests in deploy/ fit the program that they start."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import click
import kubernetes_validate
import pytest
import yaml

from holdfast import Holdfast
from holdfast.api import make_api
from holdfast.api.limits import BODY_BYTES_MAX, WAIT_SECONDS_MAX
from holdfast.cli.main import holdfast
from holdfast.domain.limits import STOP_SECONDS_MAX
from holdfast.settings import OF_COMMANDS, Settings
from tests.support.forks import ROOT

DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
NGINX = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
KUSTOMIZATION: dict[str, Any] = yaml.safe_load(
    (DEPLOY / "kubernetes" / "kustomization.yaml").read_text(encoding="utf-8")
)
USER = 10001
OF_A_WORKER = {"/livez", "/readyz"}
VARIABLES = {f"HOLDFAST_{name}".upper() for name in (*OF_COMMANDS, "key_pepper")} | {
    f"HOLDFAST_{field.name}".upper() for field in fields(Settings)
}


class Started(NamedTuple):
    """A container: what starts it, and the address where it is asked how it is."""

    place: str
    command: list[str]
    probed: list[tuple[int, str]]


def manifests() -> list[dict[str, Any]]:
    return [
        manifest
        for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
        if path.name != "kustomization.yaml"
        for manifest in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]


def pods() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What starts pods, with the pod that it starts."""
    found = []
    for manifest in manifests():
        if manifest["kind"] == "Pod":
            found.append((manifest, manifest["spec"]))
        elif "template" in manifest.get("spec", {}):
            found.append((manifest, manifest["spec"]["template"]["spec"]))
    return found


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, with continued lines joined."""
    lines = re.sub(r"(?m)^\s*#.*\n", "", DOCKERFILE).replace("\\\n", " ").splitlines()
    return [
        (name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines) if name
    ]


def argument(name: str) -> list[str]:
    """The words of an instruction in the form of a list."""
    (text,) = [rest for instruction, rest in instructions() if instruction == name]
    words: list[str] = json.loads(text[text.index("[") :])
    return words


def asked_in(words: list[str]) -> tuple[int, str]:
    found = re.search(r"http://127\.0\.0\.1:(\d+)(/[\w/]+)", " ".join(words))
    assert found is not None
    return int(found[1]), found[2]


def started() -> Iterator[Started]:
    yield Started("Dockerfile", argument("CMD"), [asked_in(argument("HEALTHCHECK"))])
    for name, service in COMPOSE["services"].items():
        if service["image"] == "holdfast":
            test = service.get("healthcheck", {}).get("test", argument("HEALTHCHECK"))
            is_probed = not service.get("healthcheck", {}).get("disable", False)
            yield Started(f"compose {name}", service["command"], [asked_in(test)] * is_probed)
    for manifest, pod in pods():
        for container in pod["containers"]:
            if "args" in container:
                place = f"{manifest['kind']} {manifest['metadata']['name']}"
                yield Started(place, container["args"], list(probed(container)))


def probed(container: dict[str, Any]) -> Iterator[tuple[int, str]]:
    ports = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        if probe in container:
            asked = container[probe]["httpGet"]
            yield ports[asked["port"]], asked["path"]


def parsed(words: list[str]) -> click.Context:
    """The command line as the real program reads it, with what the image sets."""
    command = holdfast.commands[words[0]]
    return command.make_context(words[0], words[1:])


@pytest.fixture(autouse=True)
def of_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_APP", "app:hf")


@pytest.mark.parametrize("each", list(started()), ids=lambda each: each.place)
def test_a_command_line_is_one_of_the_program_and_probes_ask_its_port(each: Started) -> None:
    options = parsed(each.command).params
    paths = {"serve": set(make_api(Holdfast()).openapi()["paths"]), "worker": OF_A_WORKER}
    port = options.get("port") or options.get("metrics_port")
    for asked_port, path in each.probed:
        assert asked_port == port
        assert path in paths[each.command[0]]
    if each.probed:
        assert (options.get("host") or options["metrics_host"]) == "0.0.0.0"


def test_a_command_line_that_is_wrong_is_found() -> None:
    with pytest.raises(click.UsageError):
        parsed(["worker", "--metrics-prot", "9464"])


def test_every_variable_is_one_that_the_program_reads() -> None:
    compose = {name for each in COMPOSE["services"].values() for name in each["environment"]}
    secrets = [each for each in manifests() if each["kind"] == "Secret"]
    image = set(re.findall(r"(HOLDFAST_\w+)=", DOCKERFILE))
    named = compose | image | {name for each in secrets for name in each["stringData"]}
    assert {name for name in named if not name.startswith("POSTGRES_")} <= VARIABLES
    written = {each["metadata"]["name"] for each in secrets}
    for _, pod in pods():
        for container in pod["containers"]:
            assert {each["secretRef"]["name"] for each in container["envFrom"]} <= written


def test_no_secret_is_written_down() -> None:
    values = [
        value for each in manifests() if each["kind"] == "Secret"
        for value in each["stringData"].values()
    ]  # fmt: skip
    assert set(values) <= {"", "postgresql://USER:PASSWORD@HOST/DATABASE"}
    example = (DEPLOY / "env.example").read_text(encoding="utf-8")
    assert re.findall(r"^(\w+)=(.*)$", example, re.MULTILINE) == [
        ("POSTGRES_PASSWORD", ""),
        ("HOLDFAST_KEY_PEPPER", ""),
        ("HOLDFAST_SECRET_KEYS", ""),
    ]


def test_containers_run_without_privileges_on_a_file_system_that_they_cannot_write() -> None:
    assert ("USER", f"{USER}:{USER}") in instructions()
    for manifest, pod in pods():
        context = pod["securityContext"]
        assert context["runAsNonRoot"], manifest["metadata"]
        assert context["runAsUser"] == context["runAsGroup"] == USER
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]
            assert set(container["resources"]) == {"requests", "limits"}
        assert {"name": "tmp", "emptyDir": {}} in pod["volumes"]
    for service in COMPOSE["services"].values():
        if service["image"] == "holdfast":
            assert service["user"] == f"{USER}:{USER}"
            assert service["read_only"]
            assert service["tmpfs"] == ["/tmp"]
            assert service["cap_drop"] == ["ALL"]


def test_what_stops_is_not_killed_before_its_grace_is_over() -> None:
    least = Settings().grace_seconds + STOP_SECONDS_MAX
    for manifest, pod in pods():
        if manifest["kind"] == "Deployment":
            (container,) = pod["containers"]
            before = container.get("lifecycle", {}).get("preStop", {"exec": {"command": ["", "0"]}})
            _, seconds = before["exec"]["command"]
            assert pod["terminationGracePeriodSeconds"] > least + int(seconds)
    for name in ("api", "worker"):
        assert int(COMPOSE["services"][name]["stop_grace_period"].removesuffix("s")) > least


@pytest.mark.parametrize(
    "manifest", manifests(), ids=lambda each: f"{each['kind']}-{each['metadata']['name']}"
)
def test_a_manifest_is_valid_for_a_cluster(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def test_selectors_and_budgets_find_the_pods_that_they_are_for() -> None:
    labels = [
        each["spec"]["template"]["metadata"]["labels"]
        for each in manifests()
        if each["kind"] == "Deployment"
    ]
    for manifest in manifests():
        if manifest["kind"] in ("Deployment", "PodDisruptionBudget"):
            assert manifest["spec"]["selector"]["matchLabels"] in labels
        elif manifest["kind"] == "Service":
            assert manifest["spec"]["selector"] in labels
            assert manifest["spec"]["ports"][0]["targetPort"] == "http"


def test_the_kustomization_names_files_and_an_image_that_are_there() -> None:
    for path in KUSTOMIZATION["resources"]:
        assert (DEPLOY / "kubernetes" / path).is_file()
    images = {container["image"] for _, pod in pods() for container in pod["containers"]}
    assert images == {each["name"] for each in KUSTOMIZATION["images"]} == {"holdfast"}


def test_a_proxy_waits_longer_than_a_client_may() -> None:
    seconds = re.search(r"proxy_read_timeout (\d+)s;", NGINX)
    megabytes = re.search(r"client_max_body_size (\d+)m;", NGINX)
    assert seconds is not None
    assert int(seconds[1]) > WAIT_SECONDS_MAX
    assert megabytes is not None
    assert int(megabytes[1]) * 1024**2 > BODY_BYTES_MAX
    assert "proxy_buffering off;" in NGINX
    assert NGINX.count("{") == NGINX.count("}")


def copied() -> list[tuple[str, str]]:
    """What the Dockerfile copies from the repository: source and target."""
    found = []
    for name, rest in instructions():
        if name == "COPY" and not rest.startswith("--from"):
            *sources, target = shlex.split(rest)
            found += [(source, target) for source in sources]
    return found


def test_what_the_image_copies_is_there_and_not_ignored() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    admitted = {line[1:] for line in ignored if line.startswith("!")}
    assert {source for source, _ in copied()} == admitted
    assert all((ROOT / source).exists() for source in admitted)
    bases = [rest for name, rest in instructions() if name == "FROM"]
    assert {base.partition(" ")[0] for base in bases} == {"python:${PYTHON}-slim"}


@pytest.mark.heavy
def test_what_the_image_copies_is_enough_to_install_it(tmp_path: Path) -> None:
    """Run the steps of the Dockerfile that need no image and no network, in an empty folder."""
    build, app = tmp_path / "build", tmp_path / "app"
    for source, target in copied():
        base = app if target.startswith("/app") else build
        place = base / target.removeprefix("/app").strip("/")
        _copy(ROOT / source, place if target == "src" else place / Path(source).name)
    (install,) = [
        rest for name, rest in instructions() if name == "RUN" and rest.endswith("isolation .")
    ]
    assert install.startswith("pip install ")
    wheel = install.replace("pip install", "-m pip wheel --no-index --wheel-dir wheels", 1)
    subprocess.run(
        [sys.executable, *shlex.split(wheel)], cwd=build, check=True, capture_output=True
    )
    (made,) = (build / "wheels").glob("holdfast-*.whl")
    with ZipFile(made) as archive:
        archive.extractall(tmp_path / "site")
    for path in (ROOT / "src").rglob("*.sql"):
        assert (tmp_path / "site" / path.relative_to(ROOT / "src")).is_file()
    for command in (["jobs", "enqueue", "greet", "--set=name=Ada"], ["worker", "--until-empty"]):
        ran = subprocess.run(
            [sys.executable, "-m", *argument("ENTRYPOINT"), *command],
            cwd=app,
            env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
    assert '"state": "succeeded"' in ran.stderr


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    else:
        shutil.copy(source, target)
