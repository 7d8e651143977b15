"""The parts of the tests, and what each part needs: names of `install --list`.

A test without a part belongs to `make test`. A test with `pytest.mark.part(NAME)` belongs to the part NAME of
`make test-all`.
"""

import dataclasses
import pathlib
import shutil

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
CACHE = PROJECT / ".cache/real"
DEFAULT = "test"


@dataclasses.dataclass(frozen=True)
class Lane:
    about: str
    needs: tuple
    # Processes of `pytest -n`. More than cores, because most tests wait.
    workers: int = 4
    # Needs target/static/tokengauge from `make static`.
    static: bool = False


ENGINE = ("node", "llama", "model")
HELM = ("kubernetes", "kinds")
BROWSER = ("chromium", "page")
PROMETHEUS = ("prometheus-debian",)

LANES = {
    DEFAULT: Lane(
        "the tests of `make test`",
        (*ENGINE, *PROMETHEUS, "prometheus", "grafana", *HELM, "expressions", *BROWSER, "schemathesis", "ledger", "nginx-haproxy", "tools"),
        workers=6,
    ),
    "agents": Lane("Claude Code, Codex, openai-agents, pydantic-ai, LangChain, Vercel AI SDK", ("node", "agents", "agents-python", "tools")),
    "alone": Lane(
        "tests that compare times or use all cores, one after the other",
        (*ENGINE, *BROWSER, "stores"),
        workers=0,
    ),
    "aws": Lane("AWS roles and signatures, by moto", ("moto", "stores", "nginx-haproxy", "tools")),
    "bench-tools": Lane("AIPerf and guidellm, which also compare times", (*ENGINE, "bench-tools"), workers=0),
    "collector": Lane("an OpenTelemetry Collector, built from Debian's sources", ("collector", "stores")),
    "containers": Lane(
        "the image and pods, by buildah and podman",
        (*PROMETHEUS, "kubernetes", "containers", "tools"),
        workers=0,
        static=True,
    ),
    "guides": Lane("the guides for KEDA, KServe and the production stack", (*PROMETHEUS, *HELM)),
    "linters": Lane("checkov on the chart", ("kubernetes", "checkov")),
    "oracles": Lane("the statistics packages that crates/stats is compared with", ("oracles",)),
    "phoenix": Lane("Arize Phoenix, an OTLP receiver for LLM calls", ("phoenix",)),
    "stores": Lane(
        "ClickHouse, SeaweedFS and Valkey: sinks, shared quotas, the fleet page",
        ("stores", "nginx-haproxy", *BROWSER, "tools"),
    ),
}

# Node looks for modules next to the importing script, so these scripts are copied there.
SCRIPTS = {"node": ("*.mjs",), "agents": ("agents/*.mjs",), "page": ("page/*.mjs", "page/fonts.conf")}


def copy_scripts():
    for name, patterns in SCRIPTS.items():
        for script in (script for pattern in patterns for script in HERE.glob(pattern)):
            target = CACHE / name / script.name
            if target.parent.is_dir() and not (target.exists() and target.read_bytes() == script.read_bytes()):
                # Another process may be reading the file.
                new = target.with_name(f"{target.name}.new")
                shutil.copy(script, new)
                new.replace(target)
