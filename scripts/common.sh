# Sourced by the other scripts: the project's root, and Go on the PATH. Scripts run
# from the root whatever folder they were called from; paths that the caller gave
# are taken relative to $caller.
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

tags=(${GLIMPSE_TAGS:+-tags "$GLIMPSE_TAGS"}) # that tests are compiled with
tools=${XDG_CACHE_HOME:-$HOME/.cache}/glimpse/tools # programs that scripts have fetched

# older tells whether version $1 comes before $2.
older() { [ "$1" != "$2" ] && [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

# old_go tells whether the Go on the PATH comes before 1.21, the first that fetches the version which go.mod asks for by itself.
old_go() {
  local found
  found=$(cd / && go version) && found=${found#go version go} && older "${found%% *}" 1.21
}

# find_go puts Go on the PATH where there is none, or an old one: the one that setup.sh has fetched, or that of Go's own archive.
find_go() {
  local dir
  if command -v go >/dev/null && ! old_go; then return; fi
  for dir in "$tools/go/bin" /usr/local/go/bin; do
    if [ -x "$dir/go" ]; then
      PATH=$dir:$PATH
      return
    fi
  done
}
find_go

# die prints an error under the script's name and ends.
die() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# absolute prints a path of the caller as an absolute one.
absolute() {
  case $1 in
    /*) echo "$1" ;;
    *) echo "$caller/$1" ;;
  esac
}

# duration prints seconds for people.
duration() {
  if [ "$1" -lt 60 ]; then echo "$1 s"; else printf '%d min %02d s\n' $(($1 / 60)) $(($1 % 60)); fi
}

# step prints what comes now, of so many steps.
step() { # TEXT
  at=$((${at:-0} + 1))
  printf '\n[%d/%d] %s\n' "$at" "${steps:?}" "$*" >&2
}

# counted passes lines on that say something, and shows how many of the others there have been: what "go build -v" and
# "go mod download -x" print, a line for each package and file. On a terminal the count is redrawn, elsewhere it is told every 10 seconds.
counted() { # WHAT [MOST]
  local line n=0 told=$SECONDS begin=$SECONDS
  while IFS= read -r line; do
    if [[ ! $line =~ ^[^[:space:]:]+$ && ! $line =~ ^'# get '.*[.]zip:\ 200 ]]; then
      [[ $line == '# get '* ]] || printf '%s\n' "$line"
      continue
    fi
    n=$((n + 1))
    if [ -t 2 ]; then
      printf '\r  %d%s %s, %s ' "$n" "${2:+ of at most $2}" "$1" "$(duration $((SECONDS - begin)))" >&2
    elif [ $((SECONDS - told)) -ge 10 ]; then
      printf '  %d%s %s, %s\n' "$n" "${2:+ of at most $2}" "$1" "$(duration $((SECONDS - begin)))" >&2
      told=$SECONDS
    fi
  done
  [ $n = 0 ] || { [ ! -t 2 ] || printf '\r' >&2; printf '  %d %s, %s \n' "$n" "$1" "$(duration $((SECONDS - begin)))" >&2; }
}

# build_programs installs what is missing, compiles the programs into bin/ and shows how far it is.
build_programs() {
  local packages
  scripts/setup.sh
  find_go
  packages=$(go list -deps ./cmd/... | wc -l)
  go build -v -o bin/ ./cmd/... 2>&1 | counted "packages compiled" "$packages" >&2
}

# compilers installs those of C and C++ where they are missing.
compilers() {
  if command -v g++ >/dev/null && command -v make >/dev/null; then return; fi
  command -v apt-get >/dev/null || die "g++ and make are missing and there is no apt-get to install them with"
  local as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  "${as_root[@]}" apt-get update -q
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends g++ make libc6-dev
}

# replace_section puts standard input between the lines "<!-- NAME -->" and
# "<!-- end of NAME -->" of a file.
replace_section() { # FILE NAME
  local section
  section=$(mktemp)
  { echo "<!-- $2 -->"; echo; cat; echo; echo "<!-- end of $2 -->"; } >"$section"
  if ! awk -v section="$section" -v name="$2" '
    $0 == "<!-- " name " -->" { while ((getline line < section) > 0) print line; inside = 1; found++ }
    !inside
    $0 == "<!-- end of " name " -->" { inside = 0 }
    END { exit found == 1 && !inside ? 0 : 1 }
  ' "$1" >"$section.new"; then
    rm -f "$section" "$section.new"
    die "$1: want one section between '<!-- $2 -->' and '<!-- end of $2 -->'"
  fi
  cat "$section.new" >"$1"
  rm -f "$section" "$section.new"
}

# versitygw prints the program of a real S3 server for tests, which it installs where it
# is missing: GLIMPSE_VERSITYGW, or one of the version below in the user's cache folder.
versitygw() {
  local module=github.com/versity/versitygw version=v1.8.0 program work sources
  program=${GLIMPSE_VERSITYGW:-$tools/$version/versitygw}
  if [ ! -x "$program" ]; then
    [ -z "${GLIMPSE_VERSITYGW:-}" ] || die "GLIMPSE_VERSITYGW: $program is not a program"
    echo "fetching and compiling the S3 server $module, once, into $(dirname "$program")" >&2
    work=$(mktemp -d)
    sources=$(cd "$work" && go mod download -json $module@$version | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
    cp -r --no-preserve=mode "$sources" "$work/sources"
    # Its own tests and Azure's client are a quarter of what is compiled.
    echo 'package main; import "github.com/urfave/cli/v2"; func testCommand() *cli.Command { return &cli.Command{Name: "test"} }' >"$work/sources/cmd/versitygw/test.go"
    echo 'package gwcli; import "github.com/urfave/cli/v2"; func AzureCommand() *cli.Command { return &cli.Command{Name: "azure"} }' >"$work/sources/cmd/internal/gwcli/azure.go"
    # Compiling it fast is worth more than its speed.
    (cd "$work/sources" && go build -ldflags='-s -w' -gcflags='github.com/...=-N -l' -o "$program" ./cmd/versitygw) >&2 || die "$module could not be installed"
    rm -r "$work"
  fi
  echo "$program"
}

# blocks prints the sh blocks of a document, each line led by "run" and the number of the line
# that the block starts on; "skip", that number and the reason of those that are not run; and
# "bare" with the number of each line that is a command in a block of another kind.
blocks() { # FILE
  awk '
    function command() { return $0 ~ /^ *([.]\/(bin|scripts)\/|(evict|train|make|go|docker|curl|pip) [a-z.-])/ }
    /^<!-- not run: .+ -->$/ { why = $0; gsub(/^<!-- not run: | -->$/, "", why); next }
    /^```/ && !inside { inside = 1; sh = $0 == "```sh"; start = NR; if (why) print "skip:" NR ":" why; skip = why; at = NR; why = ""; next }
    /^```/ { inside = 0; skip = ""; next }
    inside && sh && !skip { print "run:" start ":" $0 }
    skip && /[^[:space:]]/ && !/^```/ { print "left:" at ":" $0 }
    inside { if (!sh && !skip && command()) print "bare:" NR ":" $0; next }
    /^    / && why { print "skip:" NR ":" why; skip = why; at = NR; why = "" }
    /^    / { if (!skip && command()) print "bare:" NR ":" $0; next }
    /[^[:space:]]/ { why = skip = "" }
  ' "$1"
}

# need_chromium sets and exports GLIMPSE_CHROMIUM, a headless Chromium: the one that it names, one that is
# installed, or, where there is none and this runs as root, Debian's.
need_chromium() {
  local browsers=(chromium-headless-shell chromium chromium-browser google-chrome) name
  if [ -z "${GLIMPSE_CHROMIUM:-}" ]; then
    for name in "${browsers[@]}"; do
      if GLIMPSE_CHROMIUM=$(command -v "$name"); then break; fi
    done
  fi
  if [ -z "$GLIMPSE_CHROMIUM" ]; then
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || die "no Chromium: install one, or name it in GLIMPSE_CHROMIUM"
    apt-get update -qq && apt-get install -qq -y --no-install-recommends "${browsers[0]}" >/dev/null
    GLIMPSE_CHROMIUM=$(command -v "${browsers[0]}") || die "${browsers[0]} could not be installed"
  fi
  export GLIMPSE_CHROMIUM
}
