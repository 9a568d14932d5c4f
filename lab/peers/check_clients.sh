#!/usr/bin/env bash
# Asks "evict serve" by the clients that people have: OpenAI's for Python and Go, its Agents SDK, Anthropic's, LangChain's, the requests of Codex,
# lm-eval's local-completions; and by agents, with the settings of docs/agents.md: Codex, Continue, OpenCode, aider, llm. One line
# a client; 0 only if all of them have got what they asked for. CI does not run it, since it fetches the clients (from PyPI and npm, the versions in
# lab/peers/clients/requirements.txt, package.json and below) and a model. Agents send long prompts: minutes each on two cores.
#
#   ./lab/peers/check_clients.sh [--model FILE] [--tools-model FILE] [--only NAMES]
#
# --model        a GGUF file or folder (SmolLM2-135M-Instruct, which scripts/smollm2.sh fetches)
# --tools-model  another one, whose chat template knows tools, such as Qwen2.5-Coder-0.5B-Instruct: asked for calls, too
# --only         some of openai_go, openai_python, openai_agents, anthropic, langchain, langchain_page, codex, codex_cli, continue,
#                opencode, aider, llm, open_webui, lm_eval, with commas; open_webui is asked only where it is named
# GLIMPSE_CLIENTS_VENV is the folder of the Python environment, which is made where it is missing (in the user's cache); aider, whose pins
# are its own, and npm's clients lie in folders beside it, and are fetched where they are asked for. Where npm is missing, its clients are left out.
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
wants() { case ,$only, in ,, | *,"$1",*) ;; *) return 1 ;; esac }
python_of() { # VERSION...: the first of these that runs
  local version
  for version; do
    if "python$version" -c '' 2>/dev/null; then
      echo "python$version"
      return
    fi
  done
  return 1
}
left='' # clients that cannot be asked here
aider=$venv-aider
if wants aider && [ "$(cat "$aider/installed.txt" 2>/dev/null)" != aider-chat==0.86.2 ]; then
  python=$(python_of 3.12 3.11 3.10) || die "aider wants Python 3.10 to 3.12"
  echo "fetching aider, once, into $aider" >&2
  "$python" -m venv "$aider"
  "$aider/bin/pip" install --quiet --disable-pip-version-check aider-chat==0.86.2
  echo aider-chat==0.86.2 >"$aider/installed.txt"
fi
npm=$venv-npm
if wants codex_cli || wants continue || wants opencode; then
  if ! command -v npm >/dev/null; then
    left=codex_cli,continue,opencode
    echo "no npm: $left are left out" >&2
  elif ! cmp -s lab/peers/clients/package.json "$npm/package.json" || [ ! -e "$npm/installed" ]; then
    echo "fetching the clients of lab/peers/clients/package.json, once, into $npm" >&2
    mkdir -p "$npm"
    cp lab/peers/clients/package.json "$npm/"
    npm install --prefix "$npm" --silent --no-audit --no-fund --ignore-scripts # programs are in the packages themselves
    node "$npm/node_modules/opencode-ai/postinstall.mjs"                              # OpenCode's is put in its place by this
    touch "$npm/installed"
  fi
fi
webui=$venv-open-webui
if [[ ,$only, == *,open_webui,* ]] && [ "$(cat "$webui/installed.txt" 2>/dev/null)" != open-webui==0.12.4 ]; then
  python=$(python_of 3.12 3.11) || die "Open WebUI wants Python 3.11 or 3.12"
  echo "fetching Open WebUI, some gigabytes, once, into $webui" >&2
  "$python" -m venv "$webui"
  "$webui/bin/pip" install --quiet --disable-pip-version-check open-webui==0.12.4
  echo open-webui==0.12.4 >"$webui/installed.txt"
fi
programs=$venv/bin:$aider/bin:$npm/node_modules/.bin:$webui/bin
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
    "$venv/bin/python" lab/peers/clients/check.py --url "http://$address" --model "$name" --key "$key" --only "$others" --without "$left" --programs "$programs" "$@" || failed=1
  fi
  if ! kill -0 "$server" 2>/dev/null; then
    failed=1
    echo "the server has ended: $(tail -n 40 "$work/log")" >&2
  fi
  stop
}

ask clients "$model"
[ -z "$tools_model" ] || ask clients-tools "$tools_model" --tools
exit $failed
