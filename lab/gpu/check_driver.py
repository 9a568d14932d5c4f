#!/usr/bin/env python3
"""Holds a C header of ours that declares NVIDIA's driver (kernels/cudadriver/include/cuda.h)
against NVIDIA's own: enumerators, structures, prototypes, and the names that macros map to.
lab/gpu/check_driver.sh calls it; gcc does the comparing, by static assertions.

    check_driver.py OURS NVIDIA_INCLUDE_DIR

A structure may ask for a stricter alignment than NVIDIA's: versions differ. What a version
lacks is listed, and no fault: later drivers have it.
"""
import pathlib
import re
import subprocess
import sys
import tempfile


def check(source: str, include: str) -> list[str]:
    """Compiles source against include and returns the compiler's errors."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "check.c"
        file.write_text(source)
        done = subprocess.run(
            ["gcc", "-std=gnu11", "-fsyntax-only", "-fmax-errors=0", "-I", include, str(file)],
            capture_output=True, text=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin:/usr/local/bin"},
        )
    return [line for line in done.stderr.splitlines() if "error:" in line]


def measure(header: pathlib.Path, include: str, structures: dict[str, list[str]]) -> dict[str, str]:
    """Size, alignment and offsets of structures as a header has them."""
    body = "".join(
        f'printf("{name} size %zu\\n", sizeof({name}));'
        f'printf("{name} alignment %zu\\n", _Alignof({name}));'
        + "".join(f'printf("{name}.{field} offset %zu\\n", offsetof({name}, {field}));' for field in fields)
        for name, fields in structures.items()
    )
    with tempfile.TemporaryDirectory() as folder:
        file, program = pathlib.Path(folder) / "measure.c", pathlib.Path(folder) / "measure"
        file.write_text(f"#include <stddef.h>\n#include <stdio.h>\n#include \"{header}\"\nint main(void) {{ {body} }}\n")
        subprocess.run(["gcc", "-std=gnu11", "-I", include, str(file), "-o", str(program)], check=True)
        out = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    return dict(line.rsplit(" ", 1) for line in out.splitlines())


def fields(body: str) -> list[str]:
    """The names of a structure's members, less those that are only room."""
    names = []
    for declaration in filter(None, map(str.strip, body.split(";"))):
        declared = re.sub(r"^(const\s+)?(unsigned\s+long\s+long|unsigned\s+int|_Alignas\(\d+\)\s+\w+|\w+)\s*", "", declaration)
        names += [re.sub(r"\[.*", "", name.strip().lstrip("*").strip()) for name in declared.split(",")]
    return [name for name in names if re.fullmatch(r"\w+", name) and not re.match(r"opaque|reserved|bytes$", name)]


def main() -> int:
    header, include = pathlib.Path(sys.argv[1]).resolve(), str(pathlib.Path(sys.argv[2]).resolve())
    ours = re.sub(r"//.*", "", header.read_text())
    theirs = (pathlib.Path(include) / "cuda.h").read_text()
    version = re.search(r"#define CUDA_VERSION (\d+)", theirs).group(1)
    enumerators = dict(re.findall(r"\b(C[UD][A-Z0-9_]+)\s*=\s*(\d+)", ours))
    structures = {name: fields(body) for body, name in re.findall(r"typedef struct (?:\w+)?\s*\{([^}]*)\}\s*(\w+);", ours)}
    prototypes = dict(re.findall(r"^CUresult (\w+)\(([^;]*)\);", ours, re.M))
    renamed = dict(re.findall(r"#define (cu\w+) (cu\w+)", ours))
    if min(len(enumerators), len(structures), len(prototypes), len(renamed)) == 0:
        print("the declarations were not found")
        return 1
    faults, absent = [], []

    # Masks of all flags grow with the flags.
    known = {name: value for name, value in enumerators.items() if re.search(rf"\b{name}\b", theirs) and not name.endswith("_MASK")}
    absent += sorted(set(enumerators) - set(known))
    asserts = "".join(f'_Static_assert({name} == {value}, "{name} is not {value}");\n' for name, value in known.items())
    faults += check("#include <cuda.h>\n" + asserts, include)

    absent += [name for name in structures if not re.search(rf"\b{name}\b", theirs)]
    structures = {name: members for name, members in structures.items() if name not in absent}
    have, want = measure(header, str(header.parent), structures), measure(pathlib.Path(include) / "cuda.h", include, structures)
    for what, value in want.items():
        if have[what] != value and not (what.endswith(" alignment") and int(have[what]) > int(value)):
            faults.append(f"{what} is {have[what]}, NVIDIA's {value}")

    for name, parameters in prototypes.items():
        if not re.search(rf"\b{name}\b", theirs):
            absent.append(name)
            continue
        # The macros that map a name to its version are off: versions are declared as such.
        source = (
            "#define __CUDA_API_VERSION_INTERNAL 1\n#include <cuda.h>\n"
            f'_Static_assert(__builtin_types_compatible_p(__typeof__({name}), CUresult({parameters})), "{name} has other parameters");\n'
        )
        faults += check(source, include)

    mapped = dict(re.findall(r"#\s*define\s+(cu\w+)\s+(cu\w+_v\d+)\b", theirs))
    mapped |= dict(re.findall(r"#\s*define\s+(cu\w+)\s+__CUDA_API_PTDS?Z?\((cu\w+)\)", theirs))
    for name, target in renamed.items():
        if mapped.get(name, target) != target:
            absent.append(f"{name} as {target} (it is {mapped[name]})")

    print(f"{'ok ' if not faults else 'BAD'} CUDA {version}: {len(enumerators)} enumerators, {len(structures)} structures, "
          f"{len(prototypes)} functions, {len(renamed)} names; not in this version: {', '.join(absent) or 'none'}")
    for fault in faults:
        print("   ", fault)
    return 1 if faults else 0


sys.exit(main())
