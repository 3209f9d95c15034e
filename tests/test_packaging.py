"""What users install: complete, quick to import, and free of drivers that they did not ask for."""

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from tests.conftest import TRUSTED
from tests.full import FULL

ROOT = Path(__file__).parents[1]
IMPORT_LIMIT = 0.150
RELEASED = pytest.mark.xdist_group("release")
"""Of the tests of one release: each process of pytest-xdist would build its own."""
CONTRIB = {"prometheus": "prometheus_client", "opentelemetry": "opentelemetry"}
"""What a module of ``jobboard.contrib`` needs; the extra of its name brings it."""
DRIVERS = ("sqlalchemy", "redis", "kazoo", "psycopg", "pymysql", "taskflow", *CONTRIB.values())
BACKENDS = "memory sql sqlite postgresql postgres mysql mariadb redis rediss valkey unix zookeeper zk etcd"

TIMED = """
from time import process_time
start = process_time()
import jobboard
print(process_time() - start)
"""

ABSENT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f'no module named {name!r}', name=name)

sys.meta_path.insert(0, Absent())
import jobboard
"""

USED = """
for name in jobboard.__all__:
    getattr(jobboard, name)
with jobboard.backend('board', 'memory') as board:
    board.post('resize', details={'width': 3})
    job = board.claim_next('me')
    board.consume(job, 'me')
    print(job.details, board.job_count)
"""


def python(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_is_quick() -> None:
    """The time on a core counts, of the best of several: the others may be held up by what else the machine does."""
    best = min(float(python("-c", TIMED)) for _ in range(7))
    assert best < IMPORT_LIMIT


def test_it_works_without_any_driver() -> None:
    assert python("-c", ABSENT + USED, *DRIVERS) == "{'width': 3} 0\n"


@pytest.mark.rule("An error of a bridge names the extra that is missing.")
@pytest.mark.parametrize("module", CONTRIB)
def test_a_bridge_says_which_extra_it_needs(module: str) -> None:
    """It is asked for by an import, so that is what fails; with the same error as a backend."""
    attempt = f"try:\n    import jobboard.contrib.{module}\nexcept jobboard.MissingDriver as error:\n    print(error)"
    said = python("-c", ABSENT + attempt, CONTRIB[module])
    assert (
        said == f"jobboard.contrib.{module} needs {CONTRIB[module]}: pip install '.[{module}]' in a clone of jobboard\n"
    )


def test_importing_loads_no_driver_that_is_there() -> None:
    loaded = python("-c", "import jobboard, sys; print(*sys.modules)").split()
    assert set(loaded).isdisjoint(DRIVERS)


def test_every_backend_is_listed_and_loads() -> None:
    points = [point for point in metadata.entry_points(group="jobboard.backends") if point.dist.name == "jobboard"]
    assert {point.name for point in points} == set(BACKENDS.split())
    assert all(isinstance(point.load(), type) for point in points)


def sources() -> set[str]:
    """The files of the checkout, without those that git ignores."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    names = listed.split("\0") if listed else [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")]
    return {name for name in names if name and (ROOT / name).is_file() and "__pycache__" not in name}


VERSION = metadata.version("jobboard")


def git(folder: Path, *command: str) -> None:
    author = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *author, *command], cwd=folder, capture_output=True, check=True)


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of these files, as the commit and the tag of a release."""
    copy = tmp_path_factory.mktemp("release") / "source"
    for name in sources():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    changes = (copy / "CHANGELOG.rst").read_text()
    (copy / "CHANGELOG.rst").write_text(changes.replace("\nUnreleased\n", f"\n{VERSION} (2026-12-01)\n", 1))
    git(copy, "init", "-q")
    git(copy, "add", "-A")
    git(copy, "commit", "-q", "-m", "release")
    git(copy, "tag", f"v{VERSION}")
    return copy


def release(checkout: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **TRUSTED}
    command = [sys.executable, checkout / "tools/release", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def released(tagged: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder with the files of the release, and the output of the command."""
    dist = tmp_path_factory.mktemp("dist")
    done = release(tagged, dist)
    assert done.returncode == 0, done.stdout + done.stderr
    return dist, done.stdout


@pytest.fixture(scope="module")
def sdist(released: tuple[Path, str]) -> Path:
    return released[0] / f"jobboard-{VERSION}.tar.gz"


@pytest.fixture(scope="module")
def wheel_file(released: tuple[Path, str]) -> Path:
    """Built from the sdist, which must be complete."""
    return released[0] / f"jobboard-{VERSION}-py3-none-any.whl"


@pytest.fixture(scope="module")
def wheel(wheel_file: Path) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(wheel_file) as archive:
        yield archive


@pytest.mark.rule("A release is built from a tag that names its version, and its wheel is tried.")
@pytest.mark.timeout(600)
@RELEASED
def test_a_release_is_built_from_its_tag_and_tried(released: tuple[Path, str], sdist: Path, wheel_file: Path) -> None:
    dist, said = released
    assert {*dist.iterdir()} == {sdist, wheel_file}
    counts = dict(re.findall(r"^ *(\w+) +(\d+)$", said, re.MULTILINE))
    assert counts["posted"] == counts["consumed"] != "0"
    assert (counts["lost"], counts["wrong"]) == ("0", "0")
    assert f"jobboard, version {VERSION}\nbuilt and tried: {sdist} {wheel_file}\n" in said


@pytest.mark.rule("A release is built from a tag that names its version, and its wheel is tried.")
@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        ("touch new.txt", r"differs from its commit; .*\n\?\? new.txt"),
        ("echo >> README.rst", r"differs from its commit; .*\n M README.rst"),
        (f"git tag -d v{VERSION}; git tag v99", rf"the version {VERSION}, and the commit has v99: tag it v{VERSION}"),
        ("sed -i 's/ (2026-12-01)//' CHANGELOG.rst; git commit -qam x; git tag -f v" + VERSION, "has no heading"),
    ],
    ids=["new file", "changed file", "other tag", "no changes listed"],
)
def test_a_release_is_refused(tagged: Path, tmp_path: Path, harm: str, reason: str) -> None:
    git(tagged, "clone", "-q", str(tagged), str(tmp_path / "clone"))
    git(tmp_path / "clone", "config", "user.name", "nobody")
    git(tmp_path / "clone", "config", "user.email", "nobody@example.org")
    subprocess.run(harm, shell=True, cwd=tmp_path / "clone", capture_output=True, check=True)
    done = release(tmp_path / "clone")
    assert done.returncode == 1
    assert re.search(reason, done.stderr)
    assert not (tmp_path / "clone/dist").exists()


@RELEASED
def test_the_sdist_has_all_sources(sdist: Path) -> None:
    """The package, the manual, tests and tools; not the settings of git."""
    with tarfile.open(sdist) as archive:
        shipped = {name.partition("/")[2] for name in archive.getnames()}
    assert {name for name in sources() if not name.startswith(".")} - shipped == set()


PYTHONS = ("3.11", "3.12", "3.13")


def interpreter(version: str) -> str | None:
    """Return a Python of a version: that of the tests, of the system, or of pyenv."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    return shutil.which(f"python{version}") if not pyenv else str(pyenv[-1])


THERE = {version: found for version in PYTHONS if (found := interpreter(version)) not in (None, sys.executable)}

PROGRAM = """
import jobboard

with jobboard.backend("pictures", "sqlite:///pictures.db") as board:
    board.post("resize", details={"path": "a.jpg"})
    with board.working("me") as job:
        print(job.name, job.details["path"])
    print(board.job_count)
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", THERE if FULL else [*THERE][-1:])
@RELEASED
def test_the_wheel_works_in_an_empty_environment(version: str, wheel_file: Path, tmp_path: Path) -> None:
    """On the newest Python that is there; its dependencies come from the configured index. The release was tried on
    this one. The full run tries the others."""
    env = {**os.environ, **TRUSTED}
    for name in ("PYTHONPATH", "JOBBOARD_URL", "JOBBOARD_NAME"):
        env.pop(name, None)

    def ran(*command: str | Path) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    ran(THERE[version], "-m", "venv", "empty")
    python = tmp_path / "empty/bin/python"
    ran(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel_file)
    assert metadata.version("jobboard") in ran(python.with_name("jobboard"), "--version")
    assert ran(python, "-c", PROGRAM) == "resize a.jpg\n0\n"
    (tmp_path / "pictures").mkdir()
    for number in range(4):
        (tmp_path / f"pictures/{number}.jpg").write_text(str(number))
    counts = dict(re.findall(r"^ *(\w+) +(\d+)$", ran(python.with_name("jobboard"), "demo", "pictures"), re.MULTILINE))
    assert (counts["posted"], counts["consumed"], counts["lost"], counts["wrong"]) == ("4", "4", "0", "0")


def test_the_classifiers_name_the_pythons_of_the_tests() -> None:
    named = metadata.metadata("jobboard").get_all("Classifier") or []
    assert {line.rpartition(" ")[2] for line in named if ":: 3." in line} == set(PYTHONS)


@RELEASED
def test_the_wheel_holds_the_whole_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    source = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "jobboard").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert "jobboard/py.typed" in shipped
    assert "jobboard/testing/faults.py" in shipped
    assert shipped == source


@RELEASED
def test_the_wheel_has_the_licence_and_one_version(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    (licence,) = [name for name in names if name.endswith("LICENSE")]
    assert b"Apache License" in wheel.read(licence)
    (described,) = [name for name in names if name.endswith(".dist-info/METADATA")]
    version = email.message_from_bytes(wheel.read(described))["Version"]
    assert version == metadata.version("jobboard")
    changes = (ROOT / "CHANGELOG.rst").read_text()
    assert "\nUnreleased\n---" in changes or f"\n{version} (" in changes


@RELEASED
def test_all_brings_what_async_engines_need(wheel: zipfile.ZipFile) -> None:
    """SQLAlchemy's asyncio wants greenlet, which only its extra asks for everywhere."""
    (described,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    required = email.message_from_bytes(wheel.read(described)).get_all("Requires-Dist") or []
    named = [line.lower().replace('"', "'") for line in required if "extra == 'all'" in line.replace('"', "'")]
    assert any(line.startswith("sqlalchemy[asyncio]") for line in named), named
