import shutil

import nox

nox.options.sessions = ["lint", "types", "layers", "tests"]
nox.options.default_venv_backend = "venv"
PACKAGES = ("-e", "core[demo]", "-e", "backends/cpu", "-e", "backends/cuda", "-e", "backends/opencl[pocl]")

AGREEMENT = (
    *("--setting", "QUERNEL_CPU_EMITTER=scalar"),
    *("--setting", "QUERNEL_CPU_EMITTER=spmd,QUERNEL_CPU_COARSENING=0"),
    *("--setting", "QUERNEL_CPU_EMITTER=spmd,QUERNEL_CPU_COARSENING=1"),
)


def install(session: nox.Session, *groups: str) -> None:
    session.install("--upgrade", "pip>=25.1")
    for group in groups:
        session.install("--group", group)
    session.install(*PACKAGES)


@nox.session
def lint(session: nox.Session) -> None:
    install(session, "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    install(session, "lint", "test")
    session.run("mypy")


@nox.session
def layers(session: nox.Session) -> None:
    install(session, "lint")
    session.run("lint-imports")


@nox.session(python=["3.11", "3.12", "3.13"])
def tests(session: nox.Session) -> None:
    install(session, "test")
    session.run("pytest", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """The site, into build/site. Warnings are errors."""
    install(session, "docs")
    session.run("python", "-m", "sphinx", "-W", "--keep-going", "docs", "build/site", *session.posargs)


@nox.session
def benchmarks(session: nox.Session) -> None:
    """Measures beside peers; asserts no time."""
    install(session, "test", "bench")
    session.run("python", "tests/benchmarks/start.py")
    session.run("python", "tests/benchmarks/throughput.py")


@nox.session
def races(session: nox.Session) -> None:
    """Many processes and threads that want the same kernels, and kills while they compile."""
    install(session, "test")
    session.run("python", "tests/benchmarks/races.py", *session.posargs)


@nox.session
def conform(session: nox.Session) -> None:
    """The whole conformance kit on every backend that this machine can run, and on the wrong ones that it must see."""
    install(session, "test")
    session.install("-e", "docs/tutorial/backend-c")
    for backend in session.posargs or ("cpu", "opencl", "reference", "c"):
        session.run("quernel", "conform", backend)
    session.run("pytest", "-n", "auto", "--quernel-whole", "tests/unit/testing")


@nox.session
def fuzz(session: nox.Session) -> None:
    """Random kernels, the interpreter against a backend: `nox -s fuzz -- --examples 10000`."""
    install(session, "test")
    session.run("python", "-m", "quernel.testing.fuzz", *session.posargs)


@nox.session
def math(session: nox.Session) -> None:
    """Every f32 function against its bound, six of them over all 2**32 operands; says first how long it takes."""
    install(session, "test")
    session.run("python", "-m", "quernel.testing.mathematics", *session.posargs)


@nox.session
def agreement(session: nox.Session) -> None:
    """Random kernels on the cpu's emitters, each against the interpreter: `nox -s agreement -- --examples 10000`.

    The same kernels run as scalar code, as lanes, and as lanes with coarsening.
    """
    install(session, "test")
    session.run("python", "-m", "quernel.testing.fuzz", *AGREEMENT, *session.posargs)


@nox.session
def gpu(session: nox.Session) -> None:
    """On a machine with a CUDA device: its own tests, the kit, random kernels, and a part under compute-sanitizer."""
    install(session, "test")
    session.run("pytest", "tests/gpu")
    session.run("pytest", "-n", "auto", "--quernel-backend", "cuda", "--quernel-whole", "tests/conformance")
    session.run("python", "-m", "quernel.testing.fuzz", "--backend", "cuda", "--examples", "10000")
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if sanitizer is None:
        session.warn("compute-sanitizer is not installed; nothing is run under it")
    else:
        python = ("python", "-m", "pytest", "-m", "not lost", "tests/gpu/test_kernels.py")
        # Of calls that the driver refuses it reports cuda-python's own, which ask for symbols that the driver lacks.
        memcheck = ("--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", "9")
        session.run(sanitizer, *memcheck, *python, external=True)
