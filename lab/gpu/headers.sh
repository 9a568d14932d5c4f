# Sourced by the scripts that hold what we declare of NVIDIA's interfaces against its headers.

# wheel fetches the headers of a wheel into .cache/headers/NAME-VERSION and prints where
# they lie.
wheel() { # NAME VERSION
  local at=$root/.cache/headers/$1-$2
  if [ ! -e "$at/done" ]; then
    rm -rf "$at" && mkdir -p "$at"
    python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$at/wheel" "$1==$2" >&2 || die "$1 $2 could not be fetched from PyPI"
    python3 - "$at/wheel" "$at" <<'END' >&2
import pathlib, sys, zipfile
for wheel in pathlib.Path(sys.argv[1]).glob("*.whl"):
    with zipfile.ZipFile(wheel) as z:
        for name in z.namelist():
            if "/include/" in name and not name.endswith("/"):
                target = pathlib.Path(sys.argv[2]) / name.split("/include/", 1)[1]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(z.read(name))
END
    rm -rf "$at/wheel"
    touch "$at/done"
  fi
  echo "$at"
}
