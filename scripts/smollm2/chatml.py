"""SmolLM2's chat template (ChatML), and its tokenizer."""
import os

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def gguf_tokenizer(path):
    """The tokenizer in a GGUF file: byte-level BPE with digits one by one, as llama.cpp's "smollm"."""
    from gguf import GGUFReader
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    fields = GGUFReader(path).fields
    read = lambda name: fields["tokenizer.ggml." + name].contents()
    if (read("model"), read("pre")) != ("gpt2", "smollm"):
        raise SystemExit(f"{path}: tokenizer: got {read('model')} {read('pre')}, want gpt2 smollm")
    tokens = read("tokens")
    t = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, [tuple(m.split(" ")) for m in read("merges")]))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(token, normalized=False) for token, kind in zip(tokens, read("token_type")) if kind == 3])
    return t


class Model:
    """The model's tokenizer; path is its folder, with tokenizer.json, or its GGUF file."""

    def __init__(self, path):
        from tokenizers import Tokenizer  # here, so that tests run without it

        self.tokenizer = gguf_tokenizer(path) if path.endswith(".gguf") else Tokenizer.from_file(os.path.join(path, "tokenizer.json"))

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def prompt_ids(self, row):
        """Token ids of the prompt of a row, as train generate --recipe asis makes them."""
        if "text" in row:
            return self.encode(row["text"])
        messages = row.get("messages") or [{"role": "user", "content": row["prompt"]}]
        messages = [{"role": "system", "content": SYSTEM}] + messages
        return self.encode("".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages) + "<|im_start|>assistant\n")
