"""The commands of the Kubernetes guide, run as a new user would, as far as possible without a cluster."""

import re
import shlex
import subprocess

import pytest
import yaml

from helm import CHART, PROJECT, Helm, merged, one

PAGES = ("docs/kubernetes.md", "docs/start-kubernetes.md", "docs/start-sidecar.md", "docs/fleet.md", "docs/integrations.md")


def text_of(page):
    return (PROJECT / page).read_text().replace("\\\n", " ")


def commands(program):
    """Returns every line of the guide that calls a program, split as the shell does."""
    lines = [line for page in PAGES for line in re.findall(r"^\$ (.+)$", text_of(page), re.MULTILINE)]
    return [shlex.split(line) for line in lines if line.startswith(program + " ")]


@pytest.fixture(scope="module")
def helm():
    helm = Helm()
    yield helm
    helm.close()


@pytest.fixture(scope="module")
def folder(tokengauge, tmp_path_factory):
    folder = tmp_path_factory.mktemp("guide")
    (folder / "helm").symlink_to(PROJECT / "helm")
    (folder / "values.yaml").write_text((CHART / "examples/gateway-providers.yaml").read_text())
    for command in commands("tokengauge"):
        if command[1] == "fleet":
            # The command runs until it is stopped: tests/fleet.rs. Its options must equal the options on the page.
            known = subprocess.run([tokengauge, "fleet", "--help"], capture_output=True, text=True, check=True).stdout
            assert all(option in known for option in command if option.startswith("--"))
            continue
        target = folder / command[command.index(">") + 1] if ">" in command else folder / "out"
        arguments = command[1 : command.index(">")] if ">" in command else command[1:]
        done = subprocess.run([tokengauge, *arguments], cwd=folder, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        target.write_text(done.stdout)
    return folder


def test_the_guide_has_commands_to_try():
    assert len(commands("helm")) >= 6 and len(commands("tokengauge")) >= 4 and len(commands("kubectl")) >= 4


def test_every_installation_of_the_guide_renders(helm, folder):
    for command in commands("helm"):
        if command[1] == "test":
            assert command[2] == "tokengauge"
            continue
        assert command[1:5] == ["upgrade", "--install", "tokengauge", "helm/tokengauge"], command
        values, options = {}, iter(command[5:])
        for option in options:
            if option in ("-f", "--values"):
                values = merged(values, helm.values(folder / next(options)))
            elif option == "--set":
                values = merged(values, helm.do("set", expression=next(options)))
            elif option in ("-n", "--namespace"):
                namespace = next(options)
            else:
                assert option == "--create-namespace", option
        documents = helm.documents(values, name="tokengauge", namespace=namespace)
        workload = one(documents, "Deployment")["metadata"]
        assert workload["name"] == ("tokengauge-injector" if values.get("mode") == "sidecar" else "tokengauge")
        assert workload["namespace"] == namespace


def test_the_addresses_of_the_guide_match_the_chart(helm):
    [environment] = [part for command in commands("kubectl") for part in command if part.startswith("OPENAI_BASE_URL=")]
    host, port = re.search(r"http://([\w.]+):(\d+)/", environment).groups()
    services = [one for one in helm.documents({}, name="tokengauge", namespace="llm") if one["kind"] == "Service"]
    addresses = {(f"{one['metadata']['name']}.{one['metadata']['namespace']}", one["spec"]["ports"][0]["port"]) for one in services}
    assert (host, int(port)) in addresses


def test_the_labels_of_the_guide_match_the_webhook(helm):
    webhook = one(helm.documents({"mode": "sidecar"}), "MutatingWebhookConfiguration")
    [asked] = [part for command in commands("kubectl") for part in command if part.startswith("tokengauge.dev/")]
    key, value = asked.split("=")
    selectors = [selector for hook in webhook["webhooks"] for selector in hook["namespaceSelector"]["matchExpressions"]]
    assert {"key": key, "operator": "In", "values": [value]} in selectors


def test_every_value_that_the_guide_names_is_there():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    table = re.findall(r"^\| (`.+?) \|", text_of("docs/kubernetes.md").split("\n## Values used most\n")[1].split("\n## ")[0], re.MULTILINE)
    names = [name for row in table for name in re.findall(r"`([\w.]+)`", row)]
    assert len(names) > 8
    for name in names:
        place = values
        for part in name.split("."):
            assert part in place, name
            place = place[part]


@pytest.mark.parametrize("page", PAGES)
def test_every_yaml_of_the_pages_is_yaml(page):
    blocks = re.findall(r"```yaml\n(.*?)```", text_of(page), re.DOTALL)
    assert blocks and all(all(yaml.safe_load_all(block)) for block in blocks)


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_the_pages_leads_somewhere(page):
    file = PROJECT / page
    for target, anchor in re.findall(r"\]\((?!http)([^)#\s]*)(?:#([\w-]+))?\)", text_of(page)):
        linked = (file.parent / target).resolve() if target else file
        assert linked.exists(), target
        if anchor and linked.suffix == ".md":
            heads = re.findall(r"^#+ (.+)$", linked.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
            assert anchor in slugs, f"{target}#{anchor}"
