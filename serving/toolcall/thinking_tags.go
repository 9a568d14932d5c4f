package toolcall

// DeepSeek-R1 and its distillations, Qwen3, QwQ, SmolLM3, GLM-4.5, Seed-OSS, Magistral and Ministral's reasoning models,
// and Gemma 4. DeepSeek's and Qwen3-Thinking's templates put the first mark into the prompt.
func init() {
	registerThinking(Thinking{Name: "think", Doc: `<think>…</think>`, Open: "<think>", Close: "</think>"})
	registerThinking(Thinking{Name: "seed", Doc: `<seed:think>…</seed:think>`, Open: "<seed:think>", Close: "</seed:think>"})
	registerThinking(Thinking{Name: "mistral", Doc: `[THINK]…[/THINK]`, Open: "[THINK]", Close: "[/THINK]"})
	registerThinking(Thinking{Name: "gemma4", Doc: `<|channel>thought…<channel|>`, Open: "<|channel>thought", Close: "<channel|>"})
}
