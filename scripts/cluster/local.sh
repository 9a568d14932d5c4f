#!/usr/bin/env bash
# Runs a command of train, or evict eval, in several processes of this machine that mpirun starts, and again where one has
# died:
#
#   ./scripts/cluster/local.sh --ranks 4 --restarts 2 -- run CONFIG.yaml
#   ./scripts/cluster/local.sh --ranks 4 -- eval --out out/eval --resume
#
# Training adds gradients over MPI; an evaluation and a generation share their work through --out. A run goes on from its last checkpoint (--run or --checkpoint), or with what --out has. Names are relative
# to the repository.
set -euo pipefail
source "$(dirname "$0")/../common.sh"

ranks=2 restarts=0
while [ $# -gt 0 ]; do
  case $1 in
    --ranks) ranks=${2:?--ranks: a number is missing}; shift 2 ;;
    --restarts) restarts=${2:?--restarts: a number is missing}; shift 2 ;;
    --) shift; break ;;
    *) die "unknown argument $1: want --ranks N, --restarts N, -- and a command" ;;
  esac
done
[ $# -gt 0 ] || die "the command is missing after --"
program=train
[ "$1" != eval ] || program=evict
command -v mpirun >/dev/null || die "mpirun is missing: install Open MPI (Debian: apt-get install openmpi-bin)"

# The ranks share the cores. mpirun would give each of them one.
share=$(($(nproc) / ranks))
export GOMAXPROCS=${GOMAXPROCS:-$((share > 0 ? share : 1))}
# As root mpirun wants to be asked twice; more ranks than cores are slow but right.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
# Containers may not read the memory of other processes, of which Open MPI 4 warns.
export OMPI_MCA_btl_vader_single_copy_mechanism=none
# mpirun ends with an interrupt, before its ranks can say how the run goes on.
trap 'echo "local.sh: interrupted; what is finished is kept, and the same command with --resume goes on" >&2; exit 130' INT
for try in $(seq 0 "$restarts"); do
  [ "$try" = 0 ] || set -- "${@/--replace/--resume}" --resume
  code=0
  mpirun --bind-to none -n "$ranks" "$root/bin/$program" "$@" || code=$?
  [ "$code" != 0 ] || exit 0
  [ "$try" = "$restarts" ] || echo "local.sh: the run ended with exit code $code; restart $((try + 1)) of $restarts" >&2
done
exit "$code"
