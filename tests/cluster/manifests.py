# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Checks packaging/kubernetes without a cluster: that the manifests are valid, and broken ones are not; that
the program runs with exactly the environment that the pods get; and, with COLLS_TEST_FULL=1, that the
Dockerfile builds.

manifests.py SOURCES PROGRAM
"""

import base64
import copy
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

folder = pathlib.Path(sys.argv[1]).resolve() / "packaging/kubernetes"
program = pathlib.Path(sys.argv[2]).resolve()
passed = 0
failed = 0


def check(is_good, what):
    global passed, failed
    passed += bool(is_good)
    failed += not is_good
    if not is_good:
        print("FAILED", what)


def skip(reason):
    print("skipped:", reason)
    sys.exit(77)


try:
    import yaml
    from kubernetes import client
except ImportError:
    skip("no python3-kubernetes for " + sys.executable)


class Response:
    """What the models of the client are read from."""

    def __init__(self, data):
        self.data = json.dumps(data)


# ---- the manifests

api = client.ApiClient()
model_of = {"Service": client.V1Service, "Job": client.V1Job, "Secret": client.V1Secret}


def refuse_unknown(kind, value, path):
    """Throws if a field of `value` is not one of the model `kind`, such as V1Pod or dict(str, str)."""
    if kind.startswith("list["):
        if not isinstance(value, list):
            raise ValueError(f"{path} is no list")
        for number, each in enumerate(value):
            refuse_unknown(kind[5:-1], each, f"{path}[{number}]")
    elif kind.startswith("dict("):
        if not isinstance(value, dict):
            raise ValueError(f"{path} is no map")
        for name, each in value.items():
            refuse_unknown(kind[5:-1].split(", ", 1)[1], each, f"{path}.{name}")
    elif kind in ("str", "int", "bool"):
        if type(value).__name__ != kind:
            raise ValueError(f"{path} is no {kind}: {value!r}")
    elif hasattr(client, kind):
        model = getattr(client, kind)
        known = {wire: model.openapi_types[name] for name, wire in model.attribute_map.items()}
        for name, each in value.items():
            if name not in known:
                raise ValueError(f"{path}.{name} is unknown")
            refuse_unknown(known[name], each, f"{path}.{name}")


def validate(manifest):
    """Throws if a manifest is not one that Kubernetes accepts."""
    model = model_of[manifest["kind"]]
    refuse_unknown(model.__name__, manifest, manifest["kind"])
    api.deserialize(Response(manifest), model.__name__)  # refuses missing fields and impossible values
    spec = manifest.get("spec", {})
    if manifest["kind"] == "Job" and spec["template"]["spec"].get("restartPolicy") not in ("Never", "OnFailure"):
        raise ValueError("the pods of a job are not restarted always")


def is_valid(manifest):
    try:
        validate(manifest)
        return True
    except (ValueError, TypeError, KeyError, AttributeError):
        return False


def changed(manifest, path, value):
    """A copy in which the field at `path` has another value, or is missing if that is `missing`."""
    result = copy.deepcopy(manifest)
    place = result
    for name in path[:-1]:
        place = place[name]
    if value is missing:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return result


missing = object()
documents = [each for name in ("job.yaml", "secret.yaml") for each in yaml.safe_load_all((folder / name).read_text())]
by_kind = {each["kind"]: each for each in documents}
check(set(by_kind) == {"Service", "Job", "Secret"}, "the kinds of the manifests")
for each in documents:
    try:
        validate(each)
        check(True, each["kind"])
    except Exception as problem:  # whatever the models throw
        check(False, f"{each['kind']}: {problem}")
job, service, secret = by_kind["Job"], by_kind["Service"], by_kind["Secret"]
container = ("spec", "template", "spec", "containers", 0)
for manifest, path, value in (
    (job, ("spec", "complet1ons"), 4),
    (job, ("spec", "completions"), "4"),
    (job, ("spec", "template"), missing),
    (job, ("spec", "template", "spec", "restartPolicy"), "Always"),
    (job, ("spec", "template", "spec", "containers"), missing),
    (job, container + ("name",), missing),
    (job, container + ("env", 0, "value"), 4),
    (job, container + ("env", 3, "valueFrom", "secretKeyRef", "key"), missing),
    (job, container + ("comand",), ["program"]),
    (service, ("spec", "ports", 0, "port"), missing),
    (service, ("spec", "clusterIp"), "None"),
    (secret, ("stringData",), ["secret"]),
):
    check(not is_valid(changed(manifest, path, value)), f"{manifest['kind']} with another {path}: {value!r}")

# ---- what the manifests say to each other

spec = job["spec"]
pod = spec["template"]["spec"]
ranks = spec["completions"]
variables = pod["containers"][0]["env"]
plain = {each["name"]: each["value"] for each in variables if "value" in each}
secrets = {each["name"]: each["valueFrom"]["secretKeyRef"] for each in variables if "valueFrom" in each}
check(spec["parallelism"] == ranks and plain["WORLD_SIZE"] == str(ranks), "the number of ranks")
check(pod["subdomain"] == service["metadata"]["name"], "the pods are in the service")
check(service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}, "the service selects the pods of the job")
check(plain["MASTER_ADDR"] == f"{job['metadata']['name']}-0.{pod['subdomain']}", "the name of rank 0's pod")
check(service["spec"]["ports"][0]["port"] == int(plain["MASTER_PORT"]), "the port of the store")
check(secrets["COLLS_SECRET"] == {"name": secret["metadata"]["name"], "key": "secret"}, "the secret is that of the manifest")
check(list(secret["stringData"]) == ["secret"], "the key of the secret")

# ---- the command of the pods, with their environment

command = pod["containers"][0]["command"]
check(command == ["program"], "the command")


def run_pods(given_secret, own_address, name_comes_after=0.0):
    """Runs the ranks, on this host, where the name of rank 0's pod resolves to `own_address` after some time."""
    with tempfile.TemporaryDirectory() as place:
        hosts = pathlib.Path(place) / "hosts"
        hosts.write_text("127.0.0.1 localhost\n")
        (pathlib.Path(place) / command[0]).symlink_to(program)
        pods = []
        for index in range(ranks):
            environment = dict(plain)
            environment.update({name: given_secret for name in secrets})
            environment.update({"JOB_COMPLETION_INDEX": str(index), "PATH": f"{place}:/usr/bin:/bin"})
            script = f'mount --bind "{hosts}" /etc/hosts && exec "$@"'
            pods.append(subprocess.Popen(["unshare", "-m", "sh", "-c", script, "sh", *command], env=environment,
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        time.sleep(name_comes_after)
        with open(hosts, "a") as out:
            out.write(f"{own_address} {plain['MASTER_ADDR']}\n")
        # With `backoffLimit: 0` Kubernetes ends all pods when one has failed.
        end = time.monotonic() + 60
        while time.monotonic() < end and any(each.poll() is None for each in pods):
            if any(each.poll() for each in pods):
                for each in pods:
                    each.terminate()
            time.sleep(0.05)
        texts = [each.communicate(timeout=5)[0] for each in pods]
        return [each.returncode for each in pods], texts


def has_tools():
    return os.geteuid() == 0 and shutil.which("unshare") is not None


if has_tools():
    drawn = base64.b64encode(os.urandom(32)).decode()
    address = subprocess.run(["hostname", "-I"], capture_output=True, text=True).stdout.split()
    own = address[0] if address else "127.0.0.1"
    status, texts = run_pods(drawn, own)
    check(status == [0] * ranks, f"the pods end with {status}: {texts}")
    check("all_reduce ok" in texts[0], "the output of rank 0")
    # The name server of a cluster knows a pod some time after it has started.
    status, texts = run_pods(drawn, own, 2.0)
    check(status == [0] * ranks, f"the pods end with {status} if the name comes late: {texts}")
    if not own.startswith("127."):
        status, texts = run_pods("", own)
        check(0 not in status, "an empty secret is refused")
        check("without a secret" in texts[0] and "COLLS_SECRET" in texts[0], f"the error says so: {texts[0]}")
else:
    print("not run: the pods need root, for names of their own")

# ---- the Dockerfile

lines = [line for line in (folder / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")]
stages = [line for line in lines if line.startswith("FROM ")]
check(len(stages) == 2, "two stages")
known = {"FROM", "RUN", "COPY", "WORKDIR", "CMD", "USER"}
check({line.split()[0] for line in lines} <= known, "the instructions of the Dockerfile")
check(lines[-1] == 'CMD ["program"]', "what the image runs")


def build():
    """Executes the RUN lines of each stage in a copy-on-write copy of this system; returns the program."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        made = None
        script = ["set -e", f"cd {place}", "mkdir base", "mount -t tmpfs base base", "cd base"]
        script += ["mkdir upper work root", "mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root"]
        script += ["mount -t proc proc root/proc", "mount --bind /dev root/dev"]
        script += ["mkdir -p root/source", f"cp -r {folder.parent.parent}/include {folder.parent.parent}/examples root/source"]
        where = "/"
        for line in lines:
            name, _, rest = line.partition(" ")
            if name == "WORKDIR":
                where = rest
            if name == "RUN":
                script.append("chroot root sh -ec " + "'" + f"cd {where} && {rest}".replace("'", "'\\''") + "'")
        script += [f"cp root/program {place}/program"]
        ran = subprocess.run(["unshare", "-m", "sh", "-c", "\n".join(script)], capture_output=True, text=True)
        if ran.returncode == 0:
            made = subprocess.run([f"{place}/program"], capture_output=True, text=True)
        return ran, made


if os.environ.get("COLLS_TEST_FULL") == "1" and has_tools():
    ran, made = build()
    check(ran.returncode == 0, f"the RUN lines: {ran.stdout[-2000:]} {ran.stderr[-2000:]}")
    check(made is not None and made.returncode == 0 and "all_reduce ok" in made.stdout, "the program of the image")

print(f"{passed} passed, {failed} failed")
sys.exit(failed != 0)
