"""The chart `helm/switchboard`: linted, rendered, held against Kubernetes' schemas and against what it promises.

Owns: what needs Helm and a parser of YAML. The renderings are left in a folder, where `cargo xtask helm` compares them.
Never: a cluster or the network; a rendering that is not validated; a value without a description.
"""

import json
import pathlib
import re
import shutil
import sys
import tempfile

import helm_python
import jsonschema
import kubernetes_validate
import yaml
from helm_python import chart as helm

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
CHART = ROOT / "helm/switchboard"
# The oldest that the chart takes (`kubeVersion`), one in between, and the newest with schemas here.
VERSIONS = ["1.30", "1.34", "1.37"]
RELEASE = {"name": "demo", "namespace": "toys"}
# What a release needs beside the secrets.
MINIMAL = yaml.safe_load((HERE / "values/minimal.yaml").read_text())

COMPOSE_RUNBOOKS = "http://127.0.0.1:8080/runbooks/"

failures = []


def fail(place, text):
    failures.append(f"{place}: {text}")


def lint(place, values):
    report = helm.lint(str(CHART), values, strict=True, namespace=RELEASE["namespace"])
    if report["total_charts_linted"] != 1:
        fail(place, "nothing was linted")
    for message in report["messages"]:
        # An icon is what Helm misses in every chart without one.
        if message["severity"] >= 2:
            fail(place, f"lint: {message['path']}: {message['error']}")
    for error in report["errors"]:
        fail(place, f"lint: {error}")


def with_runbooks(values, rules):
    """Rules whose alerts lead to what is set, else to the gateway."""
    repository = values.get("prometheusRule", {}).get("runbookBase")
    if repository:
        address = rf"{repository}docs/runbooks/\1.md"
        return re.sub(rf"{re.escape(COMPOSE_RUNBOOKS)}([a-z-]+)", address, rules)
    for at, scheme in (("ingress", "https" if values.get("ingress", {}).get("tls") else "http"), ("httpRoute", "https")):
        public = values.get(at, {})
        names = public.get("hosts") or public.get("hostnames")
        if public.get("enabled") and names:
            default = f"{scheme}://{names[0]}/runbooks/"
            break
    else:
        default = "http://demo-switchboard-gateway.toys.svc:8080/runbooks/"
    return rules.replace(COMPOSE_RUNBOOKS, default)


def elided(place, text, values):
    """A rendering without the files that it carries whole: `cargo xtask helm` compares those with `deploy/`."""
    carried = {"rules": 2 * values.get("prometheusRule", {}).get("enabled", False),
               "dashboards": 4 * values.get("dashboards", {}).get("enabled", False)}
    for path in sorted((CHART / "files").glob("*/*")):
        pad = " " * carried[path.parent.name]
        content = with_runbooks(values, path.read_text().strip())
        block = "\n".join(pad + line for line in content.split("\n"))
        if pad and text.count(block) != 1:
            fail(place, f"{path.relative_to(CHART)} is in the rendering {text.count(block)} times")
        if pad:
            text = text.replace(block, f"{pad}# {path.relative_to(CHART)}")
    return text


def render(place, values):
    with helm.Chart.load(str(CHART)) as chart:
        rendered = chart.render(values, is_install=True, **RELEASE)
    names = sorted(name for name in rendered if rendered[name].strip())
    text = "---\n".join(f"# Source: {name}\n{rendered[name].strip()}\n" for name in names)
    objects = []
    for name in names:
        if name.endswith(".txt"):
            continue
        try:
            objects += [found for found in yaml.load_all(rendered[name], Loader=Strict) if found]
        except yaml.YAMLError as error:
            fail(place, f"{name} is no YAML: {error}")
    return elided(place, text, values), objects


class Strict(yaml.SafeLoader):
    """Takes no key twice, as Kubernetes does not."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep) for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"{twice} twice", node.start_mark)
        return super().construct_mapping(node, deep)


def lead_somewhere(place, found):
    """Every alert has an absolute address of a runbook."""
    rules = [rule for group in found["spec"]["groups"] for rule in group["rules"] if "alert" in rule]
    for rule in rules:
        address = rule["annotations"].get("runbook_url", "")
        if not re.fullmatch(r"https?://[^/]+/\S+", address):
            fail(place, f"{rule['alert']}: its runbook_url is {address!r}")


def validate(place, found):
    if found["kind"] == "PrometheusRule":
        lead_somewhere(place, found)
    name = f"{found['kind']} {found['metadata']['name']}"
    custom = CUSTOM.get(f"{found['apiVersion']} {found['kind']}")
    if custom:
        for error in jsonschema.Draft202012Validator(custom).iter_errors(found):
            fail(place, f"{name}: {error.json_path}: {error.message}")
        return
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(found, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            at = ".".join(str(part) for part in error.path)
            fail(place, f"{name}: Kubernetes {version}: {at}: {error.message}")
        except kubernetes_validate.SchemaNotFoundError as error:
            fail(place, f"{name}: {error.message}")


def overlaid(below, above):
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {**below, **{name: overlaid(below.get(name), value) for name, value in above.items()}}


def pods(objects):
    for found in objects:
        if found["kind"] == "Pod":
            yield found, found["spec"]
        elif found["kind"] in ("Deployment", "Job"):
            yield found, found["spec"]["template"]["spec"]


def restricted(place, found, pod):
    """The restricted Pod Security Standard, and a root that nobody writes to."""
    name = f"{found['kind']} {found['metadata']['name']}"
    outer = pod.get("securityContext", {})
    if outer.get("runAsNonRoot") is not True or outer.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        fail(place, f"{name} may run as root or without a seccomp profile")
    if pod.get("automountServiceAccountToken") is not False or pod.get("enableServiceLinks") is not False:
        fail(place, f"{name} is given a token or variables of services")
    if any(name in pod for name in ("hostNetwork", "hostPID", "hostIPC")):
        fail(place, f"{name} has something of its host")
    kinds = {"configMap", "secret", "emptyDir", "persistentVolumeClaim"}
    for volume in pod.get("volumes", []):
        if not kinds & set(volume):
            fail(place, f"{name} mounts {volume}")
    for container in pod["containers"] + pod.get("initContainers", []):
        inner = container.get("securityContext", {})
        if inner != {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}:
            fail(place, f"{name}, {container['name']}: {inner}")
        if "memory" not in container.get("resources", {}).get("limits", {}):
            fail(place, f"{name}, {container['name']} has no limit of memory")
        for variable in container.get("env", []):
            secret = re.search(r"(?<!PUBLIC_)(KEY|KEY_ID|DATABASE_URL|REDIS_URL|KEY_\d+)$", variable["name"])
            if secret and "value" in variable and not variable["value"].startswith("/etc/"):
                fail(place, f"{name}: {variable['name']} is in plain sight")


def drains(place, found, pod, values):
    if found["kind"] != "Deployment":
        return
    container = pod["containers"][0]
    env = {variable["name"]: variable.get("value") for variable in container["env"]}
    stop = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    grace, drain = pod["terminationGracePeriodSeconds"], int(env["SWITCHBOARD_DRAIN_TIMEOUT_S"])
    if grace < 300 or grace < stop + drain + 30:
        fail(place, f"{container['name']}: killed after {grace} s, drains until {stop} + {drain} s")
    # An edge tells all devices in half of this, then gives them all of it, then closes for 3 s.
    devices = int(env.get("SWITCHBOARD_DEVICE_DRAIN_TIMEOUT_MS", 0))
    if devices * 1.5 + 3000 > drain * 1000:
        fail(place, f"{container['name']}: devices take {devices} ms, the process has {drain} s")


    moved = stop
    if "SWITCHBOARD_DEVICE_DRAIN_PER_S" in env:
        # Edges in turn: told by then, or in half of the time, and back after the longest wait.
        every = values["edge"]["autoscaling"]["connectionsPerPod"] / int(env["SWITCHBOARD_DEVICE_DRAIN_PER_S"])
        moved += min(every, devices / 2000) + int(env["SWITCHBOARD_DEVICE_RETRY_WITHIN_MS"]) / 1000
        if found["spec"]["minReadySeconds"] < moved:
            fail(place, f"edge: the next goes after {found['spec']['minReadySeconds']} s, devices are back after {moved} s")
    if found["spec"].get("progressDeadlineSeconds", 600) < found["spec"]["minReadySeconds"] + 600:
        fail(place, f"{container['name']}: too little time for a pod to become ready")
    claims = any("persistentVolumeClaim" in volume for volume in pod.get("volumes", []))
    if container["name"] == "control" and (found["spec"]["strategy"]["type"] == "Recreate") != claims:
        fail(place, "control: two at a time write to a folder, or there is a gap without one")


def named(place, objects):
    """Whatever HTTP comes through, and the cluster's names of gateways, MCP requests may name."""
    gateway = [pod for found, pod in pods(objects) if found["kind"] == "Deployment" and pod["containers"][0]["name"] == "gateway"]
    env = {variable["name"]: variable.get("value", "") for variable in gateway[0]["containers"][0]["env"]}
    allowed = set(env.get("SWITCHBOARD_MCP_ALLOWED_HOSTS", "").split(","))
    allowed.add(env.get("SWITCHBOARD_PUBLIC_URL", "").partition("://")[2])
    hosts = set()
    for found in objects:
        if found["kind"] in ("Ingress", "HTTPRoute"):
            routed = {rule.get("host") for rule in found["spec"]["rules"]} - {None}
            routed |= set(found["spec"].get("hostnames", []))
            if not routed and not allowed - {""}:
                fail(place, f"{found['kind']}: MCP clients would be answered 403")
            hosts |= routed
        elif found["kind"] == "Service" and found["metadata"]["name"].endswith("-gateway"):
            name = found["metadata"]["name"]
            hosts |= {name + end for end in ("", ".toys", ".toys.svc", ".toys.svc.cluster.local")}
    for host in hosts - allowed:
        fail(place, f"MCP requests that name {host} are answered 403")


def reaches(place, objects, values):
    """Network policies let through to every address that a pod is given in plain sight, and balancers to where they look."""
    policies = {found["metadata"]["labels"].get("app.kubernetes.io/component"): found["spec"]
                for found in objects if found["kind"] == "NetworkPolicy"}
    for found, pod in pods(objects) if policies else []:
        component = found["metadata"]["labels"]["app.kubernetes.io/component"]
        open_ports = {number for rule in policies[component]["egress"] for port in rule["ports"]
                      for number in range(port["port"], port.get("endPort", port["port"]) + 1)}
        text = json.dumps(pod).replace(json.dumps(values["gateway"]["publicUrl"]), "") + "".join(json.dumps(other["data"]) for other in objects if other["kind"] == "ConfigMap"
                                         and other["metadata"]["name"] == found["metadata"]["name"])
        for scheme, port in re.findall(r"(https?)://[a-z0-9.-]+\.[a-z]+(:\d+)?", text):
            port = int(port[1:]) if port else {"http": 80, "https": 443}[scheme]
            if port not in open_ports:
                fail(place, f"{component} may not reach its address at port {port}")
        # The bucket by the pod's own identity, and names by a node's cache.
        peers = json.dumps(policies[component]["egress"])
        if "AWS_REGION" in text and "AWS_ACCESS_KEY_ID" not in text and '"169.254.170.23/32"' not in peers:
            fail(place, f"{component} may not reach who gives it an identity")
        if values["networkPolicy"]["dns"]["ports"] == [53] and '"169.254.20.10/32"' not in peers:
            fail(place, f"{component} may not reach a node's cache of names")
        looked = any("9600" in json.dumps(other["metadata"].get("annotations", {})) for other in objects)
        heard = [rule.get("from") for rule in policies[component].get("ingress", []) if rule["ports"][0]["port"] == 9600]
        if looked and heard and any(peer not in heard[0] for peer in values["networkPolicy"]["httpFrom"]):
            fail(place, f"balancers may not look at the admin port of {component}")


def held(place, objects):
    """A balancer that asks edges whether they are ready cuts off no device of one that is not: it holds them still."""
    aws = "service.beta.kubernetes.io/aws-load-balancer-"
    for found in objects:
        given = found["metadata"].get("annotations") or {}
        if found["kind"] == "Service" and given.get(aws + "healthcheck-path") == "/readyz":
            attributes = given.get(aws + "target-group-attributes", "").split(",")
            if "target_health_state.unhealthy.connection_termination.enabled=false" not in attributes:
                fail(place, f"{found['metadata']['name']}: devices of an edge that is not ready are cut off")


def hooks(place, objects, values):
    """The job and the test run where they are told to, with what they are given, and Helm can print the test's log."""
    for found, pod in pods(objects):
        if found["kind"] == "Deployment":
            continue
        given = values["test" if found["kind"] == "Pod" else "migrate"]
        name = f"{found['kind']} {found['metadata']['name']}"
        for field in ("nodeSelector", "tolerations", "affinity"):
            if pod.get(field, type(given[field])()) != given[field]:
                fail(place, f"{name} has another {field} than it was given")
        if any(volume not in pod.get("volumes", []) for volume in given["extraVolumes"]):
            fail(place, f"{name} lacks a volume")
        for container in pod["containers"] + pod.get("initContainers", []):
            for field, key in (("env", "extraEnv"), ("volumeMounts", "extraVolumeMounts")):
                if any(entry not in container.get(field, []) for entry in given[key]):
                    fail(place, f"{name}, {container['name']} lacks some of {key}")
        if found["kind"] == "Pod":
            if len(pod["containers"]) != 1:
                fail(place, f"{name}: of {len(pod['containers'])} containers Helm prints no log")
            if not 0 < pod.get("activeDeadlineSeconds", 0) < 300:
                fail(place, f"{name} outlives Helm")
            if "/dev/tcp/" not in pod["containers"][0]["args"][0] or "POST /mcp" not in pod["containers"][0]["args"][0]:
                fail(place, f"{name} asks nothing of MCP")


def traced(place, objects, values):
    for found, pod in pods(objects):
        env = {variable["name"]: variable.get("value") for variable in pod["containers"][0]["env"]}
        wanted = str(values["telemetry"]["sampleRatio"]) if "SWITCHBOARD_OTLP_ENDPOINT" in env else None
        if env.get("SWITCHBOARD_TRACE_SAMPLE_RATIO") != wanted:
            fail(place, f"{found['metadata']['name']} traces another share than {wanted}")


def replicas():
    """With autoscaling a Deployment keeps as many pods as it has, or one that was without would fall to a single one."""
    cases = [({"enabled": False}, {"spec": {"replicas": 7}}, "replicas: 2"), ({"enabled": True}, {}, ""),
             ({"enabled": True}, {"spec": {"replicas": 7}}, "replicas: 7"), ({"enabled": True}, {"spec": {"replicas": 0}}, "replicas: 3")]
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(shutil.copytree(CHART, pathlib.Path(folder) / "switchboard"))
        lines = [f"{number}: {{{{ include \"switchboard.replicas\" (dict \"settings\" ({settings} | fromJson) \"live\" ({live} | fromJson)) | trim | quote }}}}"
                 for number, (settings, live) in enumerate(
                     (json.dumps(json.dumps({"replicas": 2, "autoscaling": {"minReplicas": 3, **own}})), json.dumps(json.dumps(live)))
                     for own, live, _ in cases)]
        (copy / "templates/probe.yaml").write_text("\n".join(lines))
        with helm.Chart.load(str(copy)) as chart:
            found = yaml.safe_load(chart.render(MINIMAL, is_install=True, **RELEASE)["switchboard/templates/probe.yaml"])
    for number, (own, live, wanted) in enumerate(cases):
        if found[number] != wanted:
            fail("replicas", f"{own} with {live}: {found[number]!r} instead of {wanted!r}")


def documented(objects):
    """Objects of a release `switchboard`, values and containers that commands in documents name are there."""
    names = {f"{found['kind'].lower()}/{found['metadata']['name']}" for found in objects}
    composed = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    with helm.Chart.load(str(CHART)) as chart:
        defaults = chart.values
    for path in (ROOT / "docs/operations.md", CHART / "README.md"):
        text = path.read_text()
        for kind, name in re.findall(r"\b(deployment|service|job|pod)[/ ](switchboard(?:-[a-z]+)*)", text):
            if f"{kind}/{name}" not in names:
                fail(path.name, f"there is no {kind}/{name}")
        used = re.findall(r"docker compose (?:exec|restart|stop|start|logs|run|up)(?: --entrypoint [a-z]+| --?[A-Za-z-]+)* ([a-z][a-z0-9-]*)", text)
        for name in used + " ".join(re.findall(r"for service in ([a-z0-9 -]+);", text)).split():
            if name not in composed:
                fail(path.name, f"docker compose has no {name}")
        for value in re.findall(r"--set ([A-Za-z.]+)=", text):
            inner = defaults
            for part in value.split("."):
                if not isinstance(inner, dict) or part not in inner:
                    fail(path.name, f"there is no value {value}")
                    break
                inner = inner[part]


def selected(place, objects):
    """Whatever selects pods selects some, and network policies name the ports that containers have."""
    templates = [found["spec"]["template"] for found in objects if found["kind"] in ("Deployment", "Job")]
    templates += [found for found in objects if found["kind"] == "Pod"]
    for found in objects:
        spec = found.get("spec", {})
        wanted = {"Service": lambda: spec["selector"], "NetworkPolicy": lambda: spec["podSelector"]["matchLabels"],
                  "PodDisruptionBudget": lambda: spec["selector"]["matchLabels"],
                  "Deployment": lambda: spec["selector"]["matchLabels"]}.get(found["kind"])
        if not wanted:
            continue
        labels = wanted().items()
        matching = [pod for pod in templates if labels <= pod["metadata"]["labels"].items()]
        name = f"{found['kind']} {found['metadata']['name']}"
        if not matching:
            fail(place, f"{name} selects nobody")
        ports = {port["name"] for pod in matching for each in pod["spec"]["containers"] for port in each.get("ports", [])}
        for port in spec.get("ports", []) if found["kind"] == "Service" else []:
            if port["targetPort"] not in ports:
                fail(place, f"{name} leads to a port {port['targetPort']} that nobody has")


def routes(place, objects, values):
    """HTTP from outside goes to gateways, under every path, and they know where the other services are."""
    for found in objects:
        if found["kind"] == "Ingress":
            for rule in found["spec"]["rules"]:
                paths = [(path["path"], path["pathType"], path["backend"]["service"]["name"]) for path in rule["http"]["paths"]]
                if len(paths) != 1 or paths[0][:2] != ("/", "Prefix") or not paths[0][2].endswith("-gateway"):
                    fail(place, f"the Ingress leads to {paths}")
        elif found["kind"] == "HTTPRoute":
            rule, *others = found["spec"]["rules"]
            if others or rule["matches"] != [{"path": {"type": "PathPrefix", "value": "/"}}]:
                fail(place, f"the HTTPRoute matches {found['spec']['rules']}")
            if [backend["name"].endswith("-gateway") for backend in rule["backendRefs"]] != [True]:
                fail(place, f"the HTTPRoute leads to {rule['backendRefs']}")
            if rule.get("timeouts", {}).get("request") != (values["httpRoute"]["streamTimeout"] or None):
                fail(place, f"the HTTPRoute has the time limits {rule.get('timeouts')}")
    ports = {found["metadata"]["name"]: found["spec"]["ports"][0]["port"] for found in objects if found["kind"] == "Service"}
    for found, pod in pods(objects):
        if pod["containers"][0]["name"] == "gateway":
            env = {variable["name"]: variable.get("value") for variable in pod["containers"][0]["env"]}
            for service in ("control", "chat"):
                name = found["metadata"]["name"].removesuffix("gateway") + service
                if env[f"SWITCHBOARD_{service.upper()}_URL"] != f"http://{name}:{ports[name]}":
                    fail(place, f"gateways do not reach {service}")


def described(schema, values, path="values"):
    """Each value is described and closed, stands in values.yaml, and nothing else does."""
    while "$ref" in schema:
        schema = {**DEFINITIONS[schema["$ref"].rsplit("/", 1)[-1]], **{k: v for k, v in schema.items() if k != "$ref"}}
    if len(schema.get("description", "")) < 5:
        fail("values.schema.json", f"{path} has no description")
    if schema.get("type") == "object" and "additionalProperties" not in schema:
        fail("values.schema.json", f"{path} is not closed")
    properties = schema.get("properties", {})
    for name, inner in properties.items():
        if name == "global" or not isinstance(values, dict):
            continue
        if name not in values:
            fail("values.yaml", f"{path}.{name} is missing")
        described(inner, values.get(name), f"{path}.{name}")


def refusals():
    for entry in yaml.safe_load((HERE / "refused.yaml").read_text()):
        values = overlaid(MINIMAL, entry["values"])
        try:
            with helm.Chart.load(str(CHART)) as chart:
                chart.validate_schema(values)
                chart.render(values, is_install=True, **RELEASE)
        except helm_python.HelmError as error:
            missing = [word for word in entry["words"] if word not in str(error)]
            if missing:
                fail("refused.yaml", f"{entry['values']}: {missing} not in: {error}")
        else:
            fail("refused.yaml", f"{entry['values']} was taken")


def main():
    target = pathlib.Path(sys.argv[1])
    seen = set()
    with helm.Chart.load(str(CHART)) as chart:
        defaults = chart.values
    for path in sorted((HERE / "values").glob("*.yaml")):
        values = yaml.safe_load(path.read_text()) or {}
        lint(path.stem, values)
        text, objects = render(path.stem, values)
        merged = overlaid(defaults, values)
        (target / path.name).write_text(text)
        for found in objects:
            seen.add(found["kind"])
            if found["metadata"].get("namespace") != RELEASE["namespace"]:
                fail(path.stem, f"{found['kind']} {found['metadata']['name']} is in no namespace")
            validate(path.stem, found)
        for found, pod in pods(objects):
            restricted(path.stem, found, pod)
            drains(path.stem, found, pod, merged)
        selected(path.stem, objects)
        routes(path.stem, objects, merged)
        named(path.stem, objects)
        held(path.stem, objects)
        for check in (reaches, hooks, traced):
            check(path.stem, objects, merged)
    replicas()
    documented(render("minimal", {**MINIMAL, "test": {"existingSecret": "switchboard-test"}, "fullnameOverride": "switchboard"})[1])
    with helm.Chart.load(str(CHART)) as chart:
        DEFINITIONS.update(chart.schema.get("definitions", {}))
        described(chart.schema, chart.values)
    refusals()
    # What is never rendered is never looked at.
    for kind in {name.split()[-1] for name in CUSTOM} | {"HorizontalPodAutoscaler", "PersistentVolumeClaim", "Ingress"}:
        if kind not in seen:
            fail("values", f"no rendering has a {kind}")
    for failure in failures:
        print(failure, file=sys.stderr)
    sys.exit(bool(failures))


DEFINITIONS = {}
CUSTOM = json.loads((HERE / "custom.json").read_text())

if __name__ == "__main__":
    main()
