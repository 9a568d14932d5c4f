"""The chat template (ChatML) and the tokenizer of SmolLM2 and Qwen2.5."""
import json, os

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
# Qwen2.5 cuts texts at these before it merges bytes.
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def gguf_tokenizer(path):
    """The tokenizer in a GGUF file, byte-level BPE as llama.cpp's "smollm" or "qwen2", and its chat template."""
    from gguf import GGUFReader
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    fields = GGUFReader(path).fields
    read = lambda name: fields["tokenizer." + name].contents()
    cuts = {
        "smollm": [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)],
        "qwen2": [pre_tokenizers.Split(Regex(QWEN2), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)],
    }
    if read("ggml.model") != "gpt2" or read("ggml.pre") not in cuts:
        raise SystemExit(f"{path}: tokenizer: got {read('ggml.model')} {read('ggml.pre')}, want gpt2 with one of {', '.join(cuts)}")
    tokens = read("ggml.tokens")
    t = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, [tuple(m.split(" ")) for m in read("ggml.merges")]))
    t.pre_tokenizer = pre_tokenizers.Sequence(cuts[read("ggml.pre")])
    t.decoder = decoders.ByteLevel()
    # 3 is llama.cpp's "control", 4 "user defined".
    added = [(token, kind) for token, kind in zip(tokens, read("ggml.token_type")) if kind in (3, 4)]
    t.add_tokens([AddedToken(token, normalized=False, special=kind == 3) for token, kind in added])
    return t, read("chat_template") if read("ggml.pre") == "qwen2" else ""


class Model:
    """The model's tokenizer; path is its folder, with tokenizer.json, or its GGUF file."""

    def __init__(self, path):
        from tokenizers import Tokenizer  # here, so that tests run without it

        self.tokenizer, template = gguf_tokenizer(path) if path.endswith(".gguf") else (Tokenizer.from_file(os.path.join(path, "tokenizer.json")), "")
        self.template = compiled(template) if template else None

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def prompt_ids(self, row):
        """Token ids of the prompt of a row, as train generate --recipe asis makes them."""
        if "text" in row:
            return self.encode(row["text"])
        messages = row.get("messages") or [{"role": "user", "content": row["prompt"]}]
        if self.template:
            return self.encode(self.template.render(messages=messages, tools=row.get("tools"), add_generation_prompt=True))
        messages = [{"role": "system", "content": SYSTEM}] + messages
        return self.encode("".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages) + "<|im_start|>assistant\n")


def compiled(template):
    """A chat template as transformers compiles it."""
    import jinja2

    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda x, **kwargs: json.dumps(x, ensure_ascii=False, **kwargs)
    return environment.from_string(template)
