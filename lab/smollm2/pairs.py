#!/usr/bin/env python3
"""Packs the answers of a pair file of train generate without their prompts, and joins them with
prompts made anew to the same file, to the byte.

  pairs.py pack PAIRS.jsonl ANSWERS.bin
  pairs.py join --model MODEL --prompts prompts.jsonl --out FOLDER [--max-prompt N] ANSWERS.bin...

ANSWERS.bin is LZMA (xz) of a line of JSON and what it counts: for each pair 4 bytes, the start of
the SHA-256 of the prompt's ids; the length of each response; all response ids: each number as uint16, or
uint32 where the line says "width": 4, as larger vocabularies need. Everything is little-endian. The line has the pair file's name, header line, SHA-256 and
ids. join refuses a prompt that is not what was answered, and a file that is not what was packed. With
--max-prompt it then leaves out the pairs of longer prompts."""
import argparse, hashlib, json, lzma, os, struct
import chatml



def filters(width):
    """LZMA's settings for symbols of so many bytes."""
    bits = {2: 1, 4: 2}[width]
    return [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 0, "lp": bits, "pb": bits}]


def crc32c_table():
    table = []
    for c in range(256):
        for _ in range(8):
            c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
        table.append(c)
    return table


TABLE = crc32c_table()


def crc32c(data, crc=0):
    """CRC-32C (Castagnoli) of data, after that of what stands before it."""
    crc ^= 0xFFFFFFFF
    for b in data:
        crc = TABLE[(crc ^ b) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def packed(ids, width):
    return struct.pack(f"<{len(ids)}{'H' if width == 2 else 'I'}", *ids)


def prompt_hash(ids, width):
    return hashlib.sha256(packed(ids, width)).digest()[:4]


def pair_file(header, pairs):
    """The bytes of a pair file (datasets/pairs.go) from its header line and (id, prompt ids,
    response ids). Each line carries the chain of checks of datasets/chain.go."""
    lines, check = [header], crc32c(header)
    for name, prompt, response in pairs:
        line = json.dumps({"id": name, "prompt_ids": prompt, "response_ids": response}, separators=(",", ":")).encode()
        check = crc32c(line, crc32c(struct.pack("<I", check)))
        lines.append(line[:-1] + b',"check":"%08x"}' % check)
    return b"\n".join(lines) + b"\n"


def pack(data, name):
    """The packed answers of a pair file's bytes; name is that of the file."""
    header, *lines = data.rstrip(b"\n").split(b"\n")
    pairs = [json.loads(line) for line in lines]
    if pair_file(header, [(p["id"], p["prompt_ids"], p["response_ids"]) for p in pairs]) != data:
        raise SystemExit(f"pack {name}: got a file with other fields, or damaged, want id, prompt_ids, response_ids and check")
    head = {"name": name, "header": header.decode(), "sha256": hashlib.sha256(data).hexdigest(), "ids": [p["id"] for p in pairs]}
    width = 2 if max((i for p in pairs for i in p["prompt_ids"] + p["response_ids"]), default=0) < 1 << 16 else 4
    if width != 2:
        head["width"] = width
    body = b"".join(prompt_hash(p["prompt_ids"], width) for p in pairs)
    body += packed([len(p["response_ids"]) for p in pairs], width)
    body += b"".join(packed(p["response_ids"], width) for p in pairs)
    return lzma.compress(json.dumps(head).encode() + b"\n" + body, filters=filters(width))


def unpack(data):
    """The head and, for each pair, id, prompt hash and response ids."""
    head, _, body = lzma.decompress(data).partition(b"\n")
    head = json.loads(head)
    n, width = len(head["ids"]), head.get("width", 2)
    letter = "H" if width == 2 else "I"
    lengths = struct.unpack_from(f"<{n}{letter}", body, 4 * n)
    if len(body) != (want := (4 + width) * n + width * sum(lengths)):
        raise SystemExit(f"unpack {head['name']}: got {len(body)} bytes, want {want}")
    answers, at = [], (4 + width) * n
    for i, length in enumerate(lengths):
        answers.append((head["ids"][i], body[4 * i : 4 * i + 4], list(struct.unpack_from(f"<{length}{letter}", body, at))))
        at += width * length
    return head, answers


def join(data, prompt_ids, max_prompt=None):
    """The name and the bytes of the pair file whose answers are packed in data, without prompts of
    more than max_prompt tokens; prompt_ids gives the ids of the prompt of a row's id, or None.
    Shards have the index of the row before its id."""
    head, answers = unpack(data)
    pairs = []
    for name, want, response in answers:
        prompt = prompt_ids(name.rpartition(":")[2])
        if prompt is None:
            raise SystemExit(f"join {head['name']}: {name}: the prompts lack it")
        if (got := prompt_hash(prompt, head.get("width", 2))) != want:
            raise SystemExit(f"join {head['name']}: {name}: hash of the prompt: got {got.hex()}, want {want.hex()}: other prompts were answered")
        pairs.append((name, prompt, response))
    out = pair_file(head["header"].encode(), pairs)
    if (got := hashlib.sha256(out).hexdigest()) != head["sha256"]:
        raise SystemExit(f"join {head['name']}: SHA-256: got {got}, want {head['sha256']}")
    if max_prompt is not None:
        out = pair_file(head["header"].encode(), [pair for pair in pairs if len(pair[1]) <= max_prompt])
    return head["name"], out


def write(path, data):
    with open(path + ".part", "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    os.replace(path + ".part", path)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = p.add_subparsers(dest="command", required=True)
    c = commands.add_parser("pack")
    c.add_argument("pairs")
    c.add_argument("answers")
    c = commands.add_parser("join")
    c.add_argument("--model", required=True, help="SmolLM2-135M-Instruct: its GGUF file, or a folder with its tokenizer.json")
    c.add_argument("--prompts", required=True, help="file that prompts.py wrote")
    c.add_argument("--out", required=True, help="folder for the pair files")
    c.add_argument("--max-prompt", type=int, metavar="N", help="leave out prompts of more than N tokens")
    c.add_argument("answers", nargs="+")
    a = p.parse_args()
    if a.command == "pack":
        with open(a.pairs, "rb") as f:
            write(a.answers, pack(f.read(), os.path.basename(a.pairs)))
        return
    model = chatml.Model(a.model)
    with open(a.prompts, encoding="utf-8") as f:
        rows = {row["id"]: row for row in map(json.loads, f)}
    os.makedirs(a.out, exist_ok=True)
    for path in a.answers:
        with open(path, "rb") as f:
            name, data = join(f.read(), lambda i: model.prompt_ids(rows[i]) if i in rows else None, a.max_prompt)
        write(os.path.join(a.out, name), data)


if __name__ == "__main__":
    main()
