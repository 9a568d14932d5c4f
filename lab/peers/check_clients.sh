#!/usr/bin/env bash
# Asks "evict serve" by the clients that people have: OpenAI's for Python and Go, its Agents SDK, Anthropic's, LangChain's, the requests of Codex,
# lm-eval's local-completions. One line a client; 0 only if all of them have got what they asked for. CI does not run it, since it
# fetches the clients (lab/peers/clients/requirements.txt, from PyPI) and a model.
#
#   ./lab/peers/check_clients.sh [--model FILE] [--tools-model FILE] [--only NAMES]
#
# --model        a GGUF file or folder (SmolLM2-135M-Instruct, which scripts/smollm2.sh fetches)
# --tools-model  another one, whose chat template knows tools, such as Qwen2.5-Coder-0.5B-Instruct: asked for calls, too
# --only         some of openai_go, openai_python, openai_agents, anthropic, langchain, codex, lm_eval, with commas
# GLIMPSE_CLIENTS_VENV is the folder of the Python environment, which is made where it is missing (in the user's cache).
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"

model='' tools_model='' only=''
while [ $# != 0 ]; do
  case $1 in
    -h | --help) sed -n '2,/^set/{/^# \{0,1\}/s///p}' "$root/lab/peers/check_clients.sh"; exit ;;
  esac
  [ $# -ge 2 ] || die "$1 wants a value"
  case $1 in
    --model) model=$(absolute "$2") ;;
    --tools-model) tools_model=$(absolute "$2") ;;
    --only) only=$2 ;;
    *) die "unknown argument $1" ;;
  esac
  shift 2
done
[ -n "$model" ] || model=$(scripts/smollm2.sh --model)

venv=${GLIMPSE_CLIENTS_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/glimpse/clients}
if ! cmp -s lab/peers/clients/requirements.txt "$venv/installed.txt"; then
  echo "fetching the clients of lab/peers/clients/requirements.txt, once, into $venv" >&2
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r lab/peers/clients/requirements.txt
  cp lab/peers/clients/requirements.txt "$venv/installed.txt"
fi
go build -o bin/ ./cmd/evict

work=$(mktemp -d)
server='' failed=0
stop() {
  [ -z "$server" ] || { kill -TERM "$server" 2>/dev/null && wait "$server" 2>/dev/null || true; }
  server=''
}
trap 'stop; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
key=sk-clients-$$
(umask 077 && echo "$key" >"$work/keys")

# ask runs all clients against a server of a model.
ask() { # NAME MODEL FLAG...
  local name=$1 file=$2 address='' begin
  shift 2
  bin/evict serve --model "$file" --listen 127.0.0.1:0 --served-model-name "$name" --keys "$work/keys" 2>"$work/log" &
  server=$!
  for _ in $(seq 600); do
    address=$(sed -n 's/.*msg=serving .*address=\([^ ]*\).*/\1/p' "$work/log")
    [ -z "$address" ] || break
    kill -0 "$server" 2>/dev/null || die "the server did not start: $(tail -n 3 "$work/log")"
    sleep 0.1
  done
  [ -n "$address" ] || die "the server did not start"
  case ,$only, in
    ,, | *,openai_go,*)
      begin=$SECONDS
      if GLIMPSE_CLIENTS_URL=http://$address GLIMPSE_CLIENTS_KEY=$key GLIMPSE_CLIENTS_MODEL=$name GLIMPSE_CLIENTS_TOOLS=${1:-} \
        go -C lab test -count=1 -v ./peers/clients >"$work/go" 2>&1; then
        printf '%-24s %-16s %6s s  %s tests\n' "$name" openai_go $((SECONDS - begin)) "$(grep -c '^--- PASS' "$work/go")"
      else
        failed=1
        printf '%-24s %-16s %6s s  FAILED: %s\n' "$name" openai_go $((SECONDS - begin)) "$(grep -A3 -e '^--- FAIL' "$work/go" | tr '\n' ' ')"
      fi
      ;;
  esac
  local others=${only/openai_go/}
  others=${others//,,/,}
  others=${others#,}
  others=${others%,}
  if [ -z "$only" ] || [ -n "$others" ]; then
    "$venv/bin/python" lab/peers/clients/check.py --url "http://$address" --model "$name" --key "$key" --only "$others" "$@" || failed=1
  fi
  stop
}

ask clients "$model"
[ -z "$tools_model" ] || ask clients-tools "$tools_model" --tools
exit $failed
