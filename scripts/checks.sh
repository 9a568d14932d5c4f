# Sourced by .ci/run and lab/nightly.sh: runs checks three at a time, also after one has failed, since many of
# them take one processor and wait in between. Each one's output is printed when it is done. "verdict" ends the
# run with what each took.

# Real tokenizers and chat templates, which are no part of the repository.
export GLIMPSE_DATA=${GLIMPSE_DATA:-$root/../shared/data}
if [ ! -d "$GLIMPSE_DATA" ]; then
  [ "${CI:-}" != true ] || die "the data folder $GLIMPSE_DATA is missing: the tests of real tokenizers and templates need it"
  echo "$GLIMPSE_DATA is missing: the tests of real tokenizers and templates are left out"
  unset GLIMPSE_DATA
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

failed=0 printed=0
checks=() summary=()
begin=$SECONDS

# check starts one as soon as another one of three is done. One that exits with 77 was skipped. A command, which is no function,
# is killed after $longest, where that is set: what it had said is printed.
check() { # NAME COMMAND...
  local name=$1 log=$work/check.${#checks[@]}
  shift
  checks+=("$name")
  [ -z "${longest:-}" ] || [ "$(type -t "$1")" = function ] || set -- timeout -k 10 "$longest" "$@"
  settle 2
  {
    TIMEFORMAT='%0R %0U %0S'
    { time "$@" >"$log" 2>&1; } 2>"$log.time" && verdict=ok || { [ $? = 77 ] && verdict=skipped || verdict=FAILED; }
    echo "$verdict $(tail -n 1 "$log.time")" >"$log.new"
    mv "$log.new" "$log.done"
  } &
}

# settle waits until at most so many checks run, and prints those that are done in order.
settle() { # RUNNING
  while [ "$(jobs -rp | wc -l)" -gt "$1" ]; do
    wait -n || true
    show
  done
}
show() {
  local verdict wall user system log
  while log=$work/check.$printed && [ -e "$log.done" ]; do
    read -r verdict wall user system <"$log.done"
    [ "$verdict" != FAILED ] || failed=1
    printf '\n=== %s\n' "${checks[printed]}"
    cat "$log"
    summary+=("$(printf '%-7s  %-32s %-12s  %d s of processors' "$verdict" "${checks[printed]}" "$(duration "$wall")" $((user + system)))")
    printed=$((printed + 1))
  done
}

# verdict waits for all checks, prints what each took, and exits with 0 only if all passed.
verdict() {
  settle 0
  show
  [ "$printed" = ${#checks[@]} ] || failed=1 # one was killed
  printf '\n'
  printf '%s\n' "${summary[@]}"
  printf '%-7s  %-32s %s\n' "$([ $failed = 0 ] && echo ok || echo FAILED)" "everything" "$(duration $((SECONDS - begin)))"
  exit $failed
}
