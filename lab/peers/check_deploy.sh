#!/usr/bin/env bash
# Holds the files of docs/serving against those who will read them, without running any of it: kubernetes.yaml against Kubernetes' own
# schema, fields that it does not know among the errors; compose.yaml against the Compose specification's schema, and by the loader of
# Docker Compose, with the variables' presets and with others; prometheus.yaml, and every expression of grafana.json, by promtool; the unit by systemd-analyze, where
# there is one. One line a file. CI does not run it, since it fetches the checkers: kubernetes-validate and check-jsonschema from PyPI,
# compose-go from Go's proxy, and Debian's prometheus, which is unpacked and not installed, where there is no promtool.
#
#   ./lab/peers/check_deploy.sh
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"

here=docs/serving
cache=${XDG_CACHE_HOME:-$HOME/.cache}/glimpse/deploy
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$cache"

venv=$cache/venv
wanted='kubernetes-validate==1.37.0 check-jsonschema==0.39.0'
if [ "$(cat "$venv/installed.txt" 2>/dev/null)" != "$wanted" ]; then
  python3 -m venv "$venv"
  # shellcheck disable=SC2086 # two words
  "$venv/bin/pip" install --quiet --disable-pip-version-check $wanted || die "the checkers could not be fetched from PyPI"
  echo "$wanted" >"$venv/installed.txt"
fi
promtool=$(command -v promtool || true)
if [ -z "$promtool" ]; then
  promtool=$cache/prometheus/usr/bin/promtool
  if [ ! -x "$promtool" ]; then
    (cd "$work" && apt-get download -qq prometheus >/dev/null 2>&1 && dpkg -x prometheus_*.deb "$cache/prometheus") || die "no promtool, and Debian's prometheus could not be fetched"
  fi
fi

failed=0
check() { # FILE BY COMMAND...
  local file=$1 by=$2
  shift 2
  if "$@" >"$work/out" 2>&1; then
    printf 'ok      %-24s %s\n' "$file" "$by"
  else
    failed=1
    printf 'FAILED  %-24s %s\n' "$file" "$by"
    tail -n 12 "$work/out" | sed 's/^/        /'
  fi
}

check kubernetes.yaml "Kubernetes 1.37's schema" "$venv/bin/kubernetes-validate" --strict -k 1.37.0 "$here/kubernetes.yaml"
check compose.yaml "the Compose specification's schema" "$venv/bin/check-jsonschema" --builtin-schema vendor.compose-spec "$here/compose/compose.yaml"
loader=$cache/compose-go
if [ ! -x "$loader" ]; then
  GOBIN=$work go install github.com/compose-spec/compose-go/v2/cmd@v2.16.2 || die "compose-go could not be compiled"
  mv "$work/cmd" "$loader"
fi
check compose.yaml "Docker Compose's loader" "$loader" "$here/compose/compose.yaml"
check compose.yaml "the same with variables" env MODEL=org/name POLICY=snapkv BUDGET=10% MEMORY=8g "$loader" "$here/compose/compose.yaml"
check prometheus.yaml promtool "$promtool" check config "$here/compose/prometheus.yaml"
for file in datasource.yaml dashboards.yaml; do
  check "$file" "is YAML" "$venv/bin/python" -c 'import ruamel.yaml, sys; ruamel.yaml.YAML().load(open(sys.argv[1]))' "$here/compose/$file"
done
# Each expression as a rule, with Grafana's own variables in numbers.
"$venv/bin/python" - "$here/grafana.json" >"$work/rules.yaml" <<'END' || die "grafana.json cannot be read"
import json, re, sys

board, rules = json.load(open(sys.argv[1])), []
for panel in board["panels"]:
    for target in panel.get("targets", []):
        expression = re.sub(r"\$__(rate_)?interval\b", "1m", target["expr"])
        rules.append({"record": f"panel{panel['id']}:{target['refId']}:expr", "expr": expression})
json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, sys.stdout)
END
check grafana.json "promtool, $(grep -o '"expr"' "$work/rules.yaml" | wc -l) expressions" "$promtool" check rules "$work/rules.yaml"
if command -v systemd-analyze >/dev/null; then # which wants the program to be there
  sed 's,/usr/local/bin/evict,/usr/bin/env,' "$here/evict-serve.service" >"$work/evict-serve.service"
  check evict-serve.service systemd-analyze systemd-analyze verify --man=no "$work/evict-serve.service"
fi
exit $failed
