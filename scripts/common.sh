# Sourced by the other scripts: the project's root, and Go on the PATH. Scripts run
# from the root whatever folder they were called from; paths that the caller gave
# are taken relative to $caller.
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

if ! command -v go >/dev/null && [ -x /usr/local/go/bin/go ]; then
  PATH=$PATH:/usr/local/go/bin # where Go's own archive installs it
fi

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
