#!/usr/bin/env bash
# Runs what the documents and the help texts tell people to run, in a fresh folder: every "sh"
# block of README.md, CONTRIBUTING.md, CHANGELOG.md and docs/, and every example of
# every command's --help that is no line of those.
#
# What is the reader's own has stand-ins: $MODEL and path/to/llama are a model with random weights,
# s3://bucket is a small server on this machine, and path/to/..., org/name, prompts.jsonl and
# others are made by "reader" below. Examples with them train 2 steps instead of so many.
#
# A server is started, and ended as soon as it serves.
#
# Left out, and listed with the reason, are blocks below a line "<!-- not run: WHY -->", where WHY
# begins with "takes" (so long), ".ci/run does", or "needs" something of the list "needs" below,
# examples that call a server of the reader's, and those that delete a model. Of these commands, too, flags and
# files of ours must exist.
#
# Every configuration that is trained is planned, too.
#
# A command in a block of another kind is a failure: it would be left out in silence. So is a
# file that a command leaves outside out/, which git ignores.
#
# Also checks that links of the documents lead to files and headings, that files named in
# documents and help texts exist, that the README has at most 150 lines, that docs/papers.md
# lists every arXiv number that the code cites, and that nothing cites a paper by a file name
# of ours. One line per block and example, PASS, FAIL or SKIP.
#
#   ./scripts/check_readme.sh
#   ./scripts/check_readme.sh --brief        # what .ci/run does: README.md as it is, of the rest fewer samples and steps
#   ./scripts/check_readme.sh --twice        # then again in the same folder, the other way round
#   ./scripts/check_readme.sh --text         # without running anything
#   ./scripts/check_readme.sh --archive DIR  # an unpacked release: its README, and links of its documents
set -euo pipefail
source "$(dirname "$0")/common.sh"

text='' twice='' brief='' from=$root # where the documents and the programs are
case ${1:-} in
  '') ;;
  --twice) twice=yes ;;
  --brief) brief=yes ;;
  --text) text=yes ;;
  --archive) from=$(absolute "${2:?--archive: want a folder}") ;;
  *) die "unknown argument $1" ;;
esac
work=$(mktemp -d)
trap '[ ! -e "$work/s3/pid" ] || "$root/scripts/s3_server.sh" stop "$work/s3"; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mkdir -p "$work/here/out" # which "make build" makes
if [ "$from" = "$root" ]; then
  [ -n "$text" ] || { build_programs; }
  mapfile -t documents < <(git ls-files --cached --others --exclude-standard -- README.md CONTRIBUTING.md CHANGELOG.md 'docs/*.md' 'lab/*.md' ':!lab/results/report') # which "evict report" writes
  links=(bin scripts model training lab)
else
  mapfile -t documents < <(cd "$from" && echo README.md && find docs -name '*.md' -not -path 'docs/html/*' | sort)
  mapfile -t links < <(ls "$from" | grep -vxE 'docs|out')
fi
cd "$work/here"
for name in "${links[@]}"; do ln -s "$from/$name" .; done
cp -r "$from/docs" . # texts to try policies on

# What commands may need that is not here.
needs='needs (a GPU|Python|files of models|Open MPI|a server|LongBench'"'"'s data)'

# in_release tells whether an archive of a release has a file.
in_release() { # FILE
  local file released
  file=$(realpath --relative-to "$from" "$1")
  for released in $(sed -n 's/^released=(\(.*\))$/\1/p' "$root/scripts/release.sh"); do
    case $file in "$released" | "$released"/*) return ;; esac
  done
  return 1
}

# reader makes what examples name as the reader's own, in the folder where they run.
reader() {
  local yours=$work/reader
  mkdir -p "$yours"/{path/to/mt_bench,org,adapters}
  cp -r "$root/model/testdata/golden/llama3.1" "$yours/path/to/llama"
  sed -i 's/"max_position_embeddings": *[0-9]*/"max_position_embeddings": 32768/' "$yours/path/to/llama/config.json"
  # Its vocabulary lacks bytes that texts may have.
  sed -i 's/"unk_token": *null/"unk_token": "!"/' "$yours/path/to/llama/tokenizer.json"
  echo "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + ' ' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}" >"$yours/path/to/llama/chat_template.jinja"
  ln -s ../path/to/llama "$yours/org/name"
  for size in 3.1-8B 3.2-1B; do # shapes alone
    name=${size#*-}
    ln -s "$root/training/testdata/published/Llama-$size-Instruct" "$yours/path/to/llama-${name,,}"
  done
  for i in $(seq 64); do echo "{\"id\": $i, \"prompt\": \"Box $i holds a key. What does box $i hold?\"}"; done >"$yours/prompts.jsonl"
  echo 'Answer in one word.' >"$yours/system.txt"
  echo 'A cache holds what is asked for often.' >"$yours/report.txt"
  echo 'a-key' >"$yours/keys.txt"
  echo '[{"role": "user", "content": "What is in the box?"}]' >"$yours/conversation.json"
  echo '{"question_id": 1, "category": "writing", "turns": ["What is in the box?", "And beside it?"]}' >"$yours/path/to/mt_bench/question.jsonl"
  echo 'sources: [{path: prompts.jsonl}]
samples: 64
max_new: 4
out: out/samples-of-yours' >"$yours/path/to/pairs.yaml"
  (
    cd "$yours"
    local program=$from/bin
    "$program/train" generate --model path/to/llama --prompts prompts.jsonl --samples 64 --max-new 4 --out samples.jsonl &&
    "$program/train" run "$root/scripts/examples/run.yaml" --model path/to/llama --data samples.jsonl --steps 2 --batch 1 --run path/to/run --checkpoint path/to/run.state &&
    "$program/train" export path/to/run adapters/llama --adapter all &&
      "$program/evict" compress --model path/to/llama --budget 25% report.txt -o report.kv &&
      "$program/evict" eval --model path/to/llama --data prompts.jsonl --samples 4 --policy full,snapkv,tova --budget 25% --max-new 4 --out path/to/eval &&
      cp -r path/to/eval path/to/other-eval
  ) >"$work/output" 2>&1 || { tail -n 12 "$work/output"; die "the reader's own things could not be made"; }
  for name in $(ls "$yours"); do ln -s "$yours/$name" .; done
  eval "$("$root/scripts/s3_server.sh" start "$work/s3")"
}
failures=0 ran=0 skipped=0
names=() lines=() # what is run, in the order of the documents
declare -A seen=() # lines of it: an example of a help text is run once

fail() { # WHAT
  failures=$((failures + 1))
  echo "FAIL  $*"
}

# served starts a server at any port and ends it when it serves.
served() { # COMMAND...
  local log server
  log=$(mktemp)
  "$@" --listen 127.0.0.1:0 2>"$log" &
  server=$!
  for _ in $(seq 600); do
    ! grep -q msg=serving "$log" || { kill -TERM $server && wait $server && rm "$log" && return; return 1; }
    kill -0 $server 2>/dev/null || break
    sleep 0.1
  done
  cat "$log" >&2
  return 1
}
export -f served

try() { # NAME SCRIPT
  local start=$SECONDS
  ran=$((ran + 1))
  if PATH=$from/bin:$PATH MODEL=${MODEL:-path/to/llama} bash -euo pipefail -c "$2" >"$work/output" 2>&1 </dev/null; then
    printf 'PASS  %s (%s)\n' "$1" "$(duration $((SECONDS - start)))"
  else
    failures=$((failures + 1))
    printf 'FAIL  %s\n' "$1"
    printf '%s\n' "$2" | sed 's/^/        $ /'
    tail -n 12 "$work/output" | sed 's/^/        /'
    if [ -e out/s3/pid ]; then scripts/s3_server.sh stop out/s3 || true; fi
  fi
  local stray
  stray=$(find . -mindepth 1 -maxdepth 1 ! -type l ! -name out ! -name docs)
  [ -z "$stray" ] || { fail "$1: leaves ${stray//$'\n'/ }, want all of it below out/"; rm -rf $stray; }
}

skip() { # NAME WHY
  skipped=$((skipped + 1))
  printf 'SKIP  %s (%s)\n' "$1" "$2"
}

# anchors prints the headings of a document as links name them.
anchors() { # FILE
  awk '/^```/ { code = !code } !code && /^#+ /' "$1" | sed -E 's/^#+ //; s/`//g' | tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'
}

length=$(wc -l <"$from/README.md")
[ "$length" -le 150 ] || fail "README.md: $length lines, want at most 150"
while IFS= read -r number; do
  grep -qF "$number" "$root/docs/papers.md" || fail "docs/papers.md lacks arXiv:$number, which the code cites"
done < <(git -C "$root" grep -hoE 'arXiv:[0-9]{4}\.[0-9]{5}' -- '*.go' '*.py' '*.sh' '*.md' | cut -d: -f2 | sort -u)
while IFS= read -r place; do
  fail "$place: cites a paper by a file name; want NAME, arXiv:NUMBER"
done < <(git -C "$root" grep -nE '\b(lookaheadkv|judgeq|dapq|d2o|rocketkv)[.]txt' -- '*.go' '*.py' '*.sh' '*.md' ':!scripts/check_readme.sh' | cut -d: -f1,2)

# own prints the files of ours that a text names, but those of a clone that it has made.
own() { sed 's,[.]/glimpse/[^ ]*,,g' | grep -oE '(^|[ `"(=,/])(lab|scripts|docs|[.]ci)/[A-Za-z0-9_./-]+' | sed -E 's/^[^a-z.]//; s/[.,:]+$//' | sort -u; }

# vet checks what a text says without running it: that our files exist.
vet() { # PLACE
  local file
  while IFS= read -r file; do
    [ -e "$from/$file" ] || fail "$1: names $file, which does not exist"
  done < <(own)
}

# flags checks the flags of a command that is not run.
flags() { # PLACE COMMAND
  local program command rest flag help
  while read -r program command rest; do
    help=$("$from/bin/$program" "$command" --help-all 2>&1) || { fail "$1: $program has no command $command"; continue; }
    for flag in $(grep -oE -- '(^| )--[a-z][a-z-]*' <<<"$rest"); do
      grep -qE -- "$flag( |$)" <<<"$help" || fail "$1: $program $command has no flag $flag"
    done
  done < <(grep -oE '\b(evict|train) [a-z]+ .*' <<<"$2")
}

if [ "$from" != "$root" ] && grep -nE '(^|[` ])make [a-z]' "$from/README.md"; then
  fail "README.md: names make, for which an archive has no Makefile"
fi
for document in "${documents[@]}"; do
  all=$(blocks "$from/$document")
  case $from:$document in
    "$root":* | *:README.md | *:docs/serve.md | *:docs/compare.md | *:docs/train.md) ;;
    *) all='' ;; # of an archive, only what one reads first
  esac
  [ "$document" = CHANGELOG.md ] || [ -z "$all" ] || vet "$document" <"$from/$document"
  while IFS=: read -r what start why; do
    case $what in
      bare) fail "$document:$start: '$why' is neither in an sh block nor marked <!-- not run: WHY -->" ;;
      skip)
        case $why in
          takes\ * | .ci/run\ does*) ;;
          *) grep -qxE "$needs.*" <<<"$why" || fail "$document:$start: not run: '$why', want takes ..., .ci/run does ..., or $needs" ;;
        esac
        skip "$document:$start" "$why"
        left=$(printf '%s\n' "$all" | sed -n "s/^left:$start://p")
        [ -n "$text" ] || flags "$document:$start" "$left"
        ;;
    esac
  done <<<"$all"
  for start in $(printf '%s\n' "$all" | sed -n 's/^run:\([0-9]*\):.*/\1/p' | sort -nu); do
    case $document in
      docs/serve.md | docs/compare.md) [ "$from" != "$root" ] || continue ;; # lab/first_hour.sh runs them
      lab/*) continue ;; # what was measured, and how; lab/nightly.sh runs what can be
    esac
    names+=("$document:$start")
    lines+=("$(printf '%s\n' "$all" | sed -n "s/^run:$start://p")")
    while IFS= read -r line; do
      case $line in ./bin/*) seen["${line#./bin/}"]=yes ;; esac
    done <<<"${lines[-1]}"
  done
  for target in $(grep -oE '\]\([^)]+\)' "$root/$document" | sed 's/^](//; s/)$//' | grep -vE '^https?:' || true); do
    file=${target%%#*}
    file=$from/${file:+$(dirname "$document")/}${file:-$document}
    if [ ! -e "$file" ]; then
      fail "$document: link to $target leads nowhere"
    elif [[ $document == docs/* || $document == README.md ]] && ! in_release "$file"; then
      fail "$document: link to $target leads out of an archive of a release"
    elif [[ $target == *'#'* ]] && ! anchors "$file" | grep -qxF "${target#*#}"; then
      fail "$document: link to $target: no such heading"
    fi
  done
done
if [ -n "$text" ]; then
  [ $failures = 0 ]
  exit
fi
reader
[ "$from" != "$root" ] || { names+=("docs/serve.md and docs/compare.md"); lines+=("lab/first_hour.sh path/to/llama"); }

# commands prints the subcommands of a command.
commands() { "$from/bin/$1" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p' | grep -vxE 'completion|help'; }

examples() { "$from/bin/$1" ${2:+"$2"} --help | sed -n '/^Examples:/,/^$/s/^  //p'; }

for binary in $([ "$from" != "$root" ] || echo train evict); do # an archive has the programs of the same commit
  all=$(commands $binary) || die "$binary --help lists no commands"
  for command in "" $all; do
    found=''
    [ "$from" != "$root" ] || vet "$binary $command --help-all" < <("$from/bin/$binary" $command --help-all)
    while IFS= read -r line; do
      name="$binary ${command:+$command }--help: $line"
      case $line in
        '' | \#*) continue ;;
        "evict rm "*) found=yes; skip "$name" "deletes a model of the reader's"; flags "$name" "$line"; continue ;;
        *http://*) found=yes; skip "$name" "needs a server of the reader's"; flags "$name" "$line"; continue ;;
        *path/to/* | *org/* | *s3://bucket/*)
          found=yes names+=("$name")
          lines+=("$(sed -E 's,s3://bucket/,s3://demo/,g; s/--steps [0-9]+/--steps 2/; s/^evict serve/served &/; s/ --listen [^ ]+//' <<<"$line")")
          continue
          ;;
      esac
      found=yes
      [ -z "${seen[$line]:-}" ] || continue
      seen[$line]=yes
      names+=("$name")
      lines+=("$line")
    done < <(examples $binary "$command")
    [ -n "$found" ] || fail "$binary $command --help has no example"
  done
done

# What is trained can be planned.
for file in $(printf '%s\n' "${lines[@]}" | sed -nE 's/.*\btrain (run|sweep) ([^ ]+[.]yaml).*/\2/p' | sort -u); do
  names+=("a plan of $file")
  lines+=("train plan $file")
done

if [ -n "$brief" ]; then
  for i in "${!names[@]}"; do
    [[ ${names[i]} == README.md:* ]] || lines[i]=$(sed -E 's/--samples [0-9]{2,}/--samples 8/g; s/--steps [0-9]+/--steps 2/g; s#train (run|sweep) scripts/examples/[a-z]+[.]yaml#& --set train.steps=2#; s/--hidden [0-9]{3,}/--hidden 64/g' <<<"${lines[i]}")
  done
fi
for i in "${!names[@]}"; do try "${names[i]}" "${lines[i]}"; done
if [ -n "$twice" ]; then
  echo "once more in the same folder, the last one first"
  for ((i = ${#names[@]} - 1; i >= 0; i--)); do
    [[ ${lines[i]} != *s3://demo/adapters* ]] || continue # what is in a bucket is never replaced
    try "${names[i]}, again" "${lines[i]}"
  done
fi

echo "$ran run, $skipped left out, $failures failures"
[ $failures = 0 ]
