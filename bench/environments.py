"""The environments of the measured queues: one for each, made when it is first asked for."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".cache" / "bench"
LISTED = Path(__file__).with_name("environments.toml")
INSTALL_SECONDS_MAX = 900.0


class Unavailable(Exception):
    """A queue or a service can't be had on this machine; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What one queue needs, as environments.toml lists it."""

    name: str
    service: str
    variants: tuple[str, ...]
    slow_variants: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    python: str = ""

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    def command(self) -> list[str]:
        """The beginning of the command line, up to the verb. Makes the environment if need be."""
        if not self._made():
            self._make()
        if self.packages:
            node = self.folder / "node_modules" / ".bin" / "node"
            return [str(node), str(ROOT / "bench" / "adapters" / f"{self.name}.mjs")]
        return [str(self._python), "-m", f"bench.adapters.{self.name}_adapter"]

    @property
    def _python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def _mark(self) -> Path:
        return self.folder / "made-of.json"

    def _made(self) -> bool:
        wanted = [*self.requirements, *self.packages]
        return self._mark.exists() and json.loads(self._mark.read_text()) == wanted

    def _make(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        if self.packages:
            self._install_packages()
        else:
            self._install_requirements()
        self._mark.write_text(json.dumps([*self.requirements, *self.packages]))

    def _install_requirements(self) -> None:
        self._run(_interpreter(self.python), "-m", "venv", str(self.folder))
        self._run(
            str(self._python), "-m", "pip", "install", "--quiet", "--no-input",
            "--disable-pip-version-check", *self.requirements,
        )  # fmt: skip

    def _install_packages(self) -> None:
        npm = shutil.which("npm")
        if npm is None:
            raise Unavailable(f"{self.name} needs npm, which is not installed")
        (self.folder / "package.json").write_text('{"private": true}\n')
        self._run(npm, "install", "--no-audit", "--no-fund", *self.packages)

    def _run(self, *command: str) -> None:
        ended = subprocess.run(
            command,
            cwd=self.folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=INSTALL_SECONDS_MAX,
            check=False,
        )
        if ended.returncode:
            said = (ended.stderr or ended.stdout).strip()[-1000:]
            raise Unavailable(f"{self.name} could not be installed: {said}")


def environments() -> dict[str, Environment]:
    listed = tomllib.loads(LISTED.read_text(encoding="utf-8"))
    return {
        name: Environment(
            name=name,
            service=entry["service"],
            variants=tuple(entry["variants"]),
            slow_variants=tuple(entry.get("slow_variants", ())),
            requirements=tuple(entry.get("requirements", ())),
            packages=tuple(entry.get("packages", ())),
            python=entry.get("python", ""),
        )
        for name, entry in listed.items()
    }


def command(name: str) -> list[str]:
    return environments()[name].command()


def _interpreter(oldest: str) -> str:
    """This Python, or, where a newer one is asked for, one that is installed beside it."""
    if not oldest or sys.version_info >= _version(oldest):
        return sys.executable
    names = [f"python3.{minor}" for minor in range(_version(oldest)[1], _version(oldest)[1] + 4)]
    of_pyenv = sorted((Path.home() / ".pyenv" / "versions").glob("3.*"), key=_folder_version)
    candidates = [found for name in names if (found := shutil.which(name))] + [
        str(folder / "bin" / "python")
        for folder in of_pyenv
        if _folder_version(folder) >= _version(oldest)
    ]
    for candidate in candidates:
        if subprocess.run([candidate, "-c", "import venv"], capture_output=True).returncode == 0:
            return candidate
    raise Unavailable(f"Python {oldest} or newer is not installed")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def _folder_version(folder: Path) -> tuple[int, ...]:
    return _version(folder.name)
