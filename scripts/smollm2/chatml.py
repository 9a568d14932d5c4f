"""SmolLM2's chat template (ChatML), and its tokenizer."""
import os

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


class Model:
    def __init__(self, folder):
        from tokenizers import Tokenizer  # here, so that tests run without it

        self.tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))

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
