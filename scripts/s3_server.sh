#!/usr/bin/env bash
# Runs a small S3 server (versitygw) on this machine, to try things out. It keeps its
# objects below DIR and has one bucket, "demo".
#
#   eval "$(./scripts/s3_server.sh start DIR)"
#   ./scripts/s3_server.sh stop DIR
#
# start prints the variables by which programs that use the AWS SDK find the server.
set -euo pipefail
source "$(dirname "$0")/common.sh"

[ $# = 2 ] || die "want start DIR or stop DIR"
dir=$(absolute "$2")
case $1 in
  start)
    [ ! -e "$dir/pid" ] || die "$dir/pid exists: a server is running there, or was killed; remove the file if so"
    program=$(versitygw)
    mkdir -p "$dir/objects/demo" "$dir/attributes"
    key=glimpse-demo secret=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    for port in $(shuf -i 20000-30000 -n 5); do
      "$program" -a $key -s "$secret" -q --health /health --port "127.0.0.1:$port" posix --sidecar "$dir/attributes" "$dir/objects" \
        >"$dir/log" 2>&1 </dev/null &
      pid=$!
      for _ in $(seq 100); do
        kill -0 $pid 2>/dev/null || break # the port is taken
        if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
          echo $pid >"$dir/pid"
          printf 'export %s=%s\n' AWS_ENDPOINT_URL_S3 "http://127.0.0.1:$port" AWS_ACCESS_KEY_ID $key AWS_SECRET_ACCESS_KEY "$secret" AWS_REGION us-east-1
          exit 0
        fi
        sleep 0.1
      done
      kill $pid 2>/dev/null || true
    done
    die "the server did not start: $(tail -n 3 "$dir/log")"
    ;;
  stop)
    [ -e "$dir/pid" ] || die "no server is running in $dir"
    kill "$(cat "$dir/pid")" 2>/dev/null || true
    rm "$dir/pid"
    ;;
  *) die "unknown argument '$1', want start or stop" ;;
esac
