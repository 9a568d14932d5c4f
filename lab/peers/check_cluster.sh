#!/usr/bin/env bash
# Checks the recipes for clusters as far as that goes without one. slurm.sbatch: its syntax, and the
# options for sbatch by name and value; by shellcheck and sbatch itself where they are. indexed-job.yaml: that it is one. mpijob.yaml: the
# schema of MPIJob as the operator installs it, of the pinned release, from GitHub, or of a
# file. Fields that the schema does not know are errors, too; a cluster would drop them in
# silence. python3 with pip, for jsonschema and PyYAML.
#
#   ./lab/peers/check_cluster.sh
#   ./lab/peers/check_cluster.sh --crd mpi-operator.yaml
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"

release=v0.8.0
crd=$root/.cache/mpi-operator-$release.yaml
case ${1:-} in
  --crd) crd=$(absolute "${2:?--crd: a file is missing}") ;;
  '')
    if [ ! -s "$crd" ]; then
      mkdir -p "$root/.cache"
      curl -fsSL "https://raw.githubusercontent.com/kubeflow/mpi-operator/$release/deploy/v2beta1/mpi-operator.yaml" -o "$crd.new" || die "the operator's schema could not be fetched; name a file: --crd FILE"
      mv "$crd.new" "$crd"
    fi
    ;;
  *) die "got '$1', want --crd FILE or nothing" ;;
esac

job=scripts/cluster/slurm.sbatch
for script in "$job" scripts/cluster/local.sh; do
  bash -n "$script"
  ! command -v shellcheck >/dev/null || shellcheck -x -e SC1091 "$script"
done
# Options as in sbatch's manual; what follows the first command is none.
python3 - "$job" <<'END'
import re, sys

known = {"job-name": r"\S+", "nodes": r"\d+(-\d+)?", "ntasks": r"\d+", "ntasks-per-node": r"\d+", "gpus-per-node": r"(\w+:)?\d+",
         "gpus-per-task": r"(\w+:)?\d+", "cpus-per-task": r"\d+", "time": r"(\d+-)?\d+(:\d\d){0,2}", "requeue": None,
         "open-mode": "append|truncate", "mem": r"\d+[KMGT]?", "partition": r"\S+", "output": r"\S+", "exclusive": None}
options, bad, over = {}, [], False
for number, line in enumerate(open(sys.argv[1]), 1):
    if not line.startswith("#SBATCH"):
        over = over or not (line.startswith("#") or not line.strip())
        continue
    m = re.fullmatch(r"#SBATCH --([a-z-]+)(?:=(\S+))?", line.rstrip("\n"))
    if over:
        bad.append(f"{number}: after the first command, where sbatch does not look")
    elif not m or m[1] not in known or m[1] in options:
        bad.append(f"{number}: {line.strip()}: no option, or one that is given twice")
    elif (known[m[1]] is None) != (m[2] is None) or m[2] and not re.fullmatch(known[m[1]], m[2]):
        bad.append(f"{number}: --{m[1]}: got {m[2]}, want {known[m[1]] or 'no value'}")
    else:
        options[m[1]] = m[2]
if options.get("gpus-per-node") != options.get("ntasks-per-node"):
    bad.append(f"{options.get('ntasks-per-node')} ranks on {options.get('gpus-per-node')} GPUs, want one a GPU")
for e in bad:
    print(f"{sys.argv[1]}:{e}", file=sys.stderr)
if bad:
    sys.exit(1)
print(f"ok  {sys.argv[1]}: {len(options)} options, {int(options['nodes']) * int(options['ntasks-per-node'])} ranks")
END
! command -v sbatch >/dev/null || sbatch --test-only "$job"

libraries=$root/.cache/mpijob-python
if [ ! -e "$libraries/done" ]; then
  rm -rf "$libraries"
  python3 -m pip install --quiet --target "$libraries" jsonschema==4.26.0 PyYAML==6.0.3 >&2 || die "jsonschema and PyYAML could not be fetched from PyPI"
  touch "$libraries/done"
fi
PYTHONPATH=$libraries python3 - scripts/cluster/indexed-job.yaml <<'END'
import sys, yaml
job = yaml.safe_load(open(sys.argv[1]))
spec = job["spec"]
pod = spec["template"]["spec"]
if (job["apiVersion"], job["kind"], spec["completionMode"]) != ("batch/v1", "Job", "Indexed") or pod["restartPolicy"] != "Never":
    sys.exit(f"{sys.argv[1]}: no indexed job whose pods are not restarted in place")  # backoffLimitPerIndex wants that
volumes = {v["name"] for v in pod["volumes"]}
if any(m["name"] not in volumes for c in pod["containers"] for m in c["volumeMounts"]):
    sys.exit(f"{sys.argv[1]}: a mount of no volume")
print(f"ok  {sys.argv[1]}: {spec['completions']} pods")
END
PYTHONPATH=$libraries python3 - "$crd" scripts/cluster/mpijob.yaml <<'END'
import copy, sys
import jsonschema, yaml

crds = [d for d in yaml.safe_load_all(open(sys.argv[1])) if d and d.get("kind") == "CustomResourceDefinition"]
job = yaml.safe_load(open(sys.argv[2]))
group, _, version = job["apiVersion"].partition("/")
found = [v["schema"]["openAPIV3Schema"] for d in crds for v in d["spec"]["versions"]
         if (d["spec"]["group"], d["spec"]["names"]["kind"], v["name"]) == (group, job["kind"], version)]
if len(found) != 1:
    sys.exit(f"{sys.argv[1]}: {len(found)} schemas of {job['apiVersion']} {job['kind']}, want 1")

def strict(s):
    """s as JSON Schema has it, in which what is not known is an error."""
    if isinstance(s, list):
        return [strict(x) for x in s]
    if not isinstance(s, dict):
        return s
    s = {k: strict(v) for k, v in s.items()}
    if s.pop("x-kubernetes-int-or-string", None) is True:
        s.pop("type", None)
        s["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    open_ended = s.pop("x-kubernetes-preserve-unknown-fields", None) is True
    if isinstance(s.get("properties"), dict) and s.get("type") == "object" and not open_ended:
        s.setdefault("additionalProperties", False)
    return s

# The schema leaves metadata to the server, which takes these.
metadata = {"type": "object", "additionalProperties": False, "required": ["name"], "properties": {
    "name": {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}, "namespace": {"type": "string"},
    "labels": {"type": "object"}, "annotations": {"type": "object"}}}
schema = strict(copy.deepcopy(found[0]))
schema["properties"]["metadata"] = metadata
validator = jsonschema.Draft202012Validator(schema)

def errors(job):
    return [f"{'.'.join(map(str, e.absolute_path))}: {e.message[:300]}" for e in validator.iter_errors(job)]

bad = errors(job)
specs = job["spec"]["mpiReplicaSpecs"]
ranks = specs["Worker"]["replicas"] * job["spec"]["slotsPerWorker"]
args = specs["Launcher"]["template"]["spec"]["containers"][0]["args"]
if args[args.index("-n") + 1] != str(ranks):
    bad.append(f"mpirun -n {args[args.index('-n') + 1]}, want {ranks}: the workers' slots")
gpus = specs["Worker"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
if gpus != job["spec"]["slotsPerWorker"]:
    bad.append(f"{gpus} GPUs a worker, want {job['spec']['slotsPerWorker']}: one a rank")
# The check itself sees what is wrong.
for change in ({"slots": 4}, {"slotsPerWorker": "four"}):
    if not errors({**job, "spec": {**job["spec"], **change}}):
        bad.append(f"the schema takes {change}")
for e in bad:
    print(f"{sys.argv[2]}: {e}", file=sys.stderr)
if bad:
    sys.exit(1)
print(f"ok  {sys.argv[2]}: {job['apiVersion']} {job['kind']}, {ranks} ranks")
END
