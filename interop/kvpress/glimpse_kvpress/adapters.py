import hashlib
import json
from pathlib import Path


def read_about(folder: Path, kind: str) -> dict:
    """glimpse.json of an adapter's folder. ValueError unless it is of that kind and its files are as they were written."""
    about = json.loads((folder / "glimpse.json").read_text())
    if about.get("format") != "glimpse-adapter" or about["version"] != 1 or about["kind"] != kind:
        got = " ".join(str(about.get(key)) for key in ("format", "version", "kind"))
        raise ValueError(f"{folder}: got {got}, want glimpse-adapter 1 {kind}")
    for name, want in about["files"].items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != want:
            raise ValueError(f"{folder / name}: its SHA-256 is not the one in glimpse.json")
    return about
