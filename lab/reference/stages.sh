# Sourced by scripts that make results in stages, beside common.sh: each stage goes on where it was stopped, and one
# that is finished is not done again. Such a script sets model, out, only (--stage) and configs, builds bin/ and
# stands in $out.
train=$root/bin/train evict=$root/bin/evict

# stage runs a function, which has its name unless another is given, once; or not, where another stage is asked for.
# NAME.PART is a part of stage NAME.
stage() { # NAME [FUNCTION ARGUMENT...]
  local name=$1 begin=$SECONDS
  { [ -z "$only" ] || [ "$only" = "${name%%.*}" ]; } && [ ! -e "done/$name" ] || return 0
  echo "=== $name" >&2
  shift
  "${@:-$name}"
  mkdir -p done
  echo "$name $((SECONDS - begin)) $(nproc)" >>times
  touch "done/$name"
}

# commit keeps the commit at which a run began, as NAME.commit.
commit() { # NAME
  [ -e "$1.commit" ] || git -C "$root" describe --always --dirty >"$1.commit"
}

# run trains what a configuration says, from the last checkpoint where there is one.
run() { # run|sweep NAME [FLAG...]
  commit "$2"
  "$train" "$1" "$configs/$2.yaml" --model "$model" --resume "${@:3}"
}

# measure makes or goes on with the folder of a run of eval.
measure() { # NAME [FLAG...]
  commit "$1"
  "$evict" eval --config "$configs/$1.yaml" --model "$model" --out "$1" --resume --replace "${@:2}" >/dev/null
}

# best prints, of every policy of some runs whose options stand in brackets, those with the highest mean over tasks and
# budgets, as "policy option=value ..."; of equals the first.
best() { # RUN...
  python3 - "${@/%//predictions.jsonl}" <<'END'
import collections, json, re, sys
tasks = collections.defaultdict(list)
for line in (line for file in sys.argv[1:] for line in open(file)):
    p = json.loads(line)
    if "(" not in p["policy"]: # full, which others agree with
        continue
    tasks[p["policy"], p["task"]].append(p["measures"][p["metric"]]) # every task as many at each budget
scores = collections.defaultdict(list)
for (policy, _), values in tasks.items():
    name, options = re.fullmatch(r"([\w+-]+)\((.*)\)", policy).groups()
    scores[name, options].append(sum(values) / len(values))
mean = {key: sum(v) / len(v) for key, v in scores.items()}
for policy in dict.fromkeys(name for name, _ in mean):
    options = max((o for name, o in mean if name == policy), key=lambda o: mean[policy, o])
    print(policy, *options.split(","))
END
}
