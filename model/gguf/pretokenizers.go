package gguf

import "glimpse/internal/registry"

// preTokenizer is how a byte-level tokenizer cuts texts into words, and what llama.cpp sets with it
// (llama-vocab.cpp, tokenizer_pre).
type preTokenizer struct {
	steps        []any // of tokenizer.json's pre_tokenizer
	nfc          bool  // texts are normalised, as the models' own tokenizers do and llama.cpp does not
	ignoreMerges bool  // a word in the vocabulary is one token
	addBOS       bool  // where the file does not say
}

// defaultPre is what llama.cpp takes for files that name none.
const defaultPre = "default"

// preTokenizers are by tokenizer.ggml.pre.
var preTokenizers = registry.Registry[preTokenizer]{Noun: "pre-tokenizer"}

type object = map[string]any

func byteLevel(regex bool) object {
	return object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex}
}

func digits(individual bool) object {
	return object{"type": "Digits", "individual_digits": individual}
}

// splits cuts out what the patterns match, one after the other.
func splits(patterns ...string) []any {
	var steps []any
	for _, p := range patterns {
		steps = append(steps, object{"type": "Split", "pattern": object{"Regex": p}, "behavior": "Isolated", "invert": false})
	}
	return steps
}

// The patterns come from the models' own tokenizer.json, where llama.cpp has them rewritten.
const (
	llama3Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	gpt2Pattern   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	qwenPattern   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwen35Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	seedPattern   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+`
	o200kPattern  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	tekkenPattern = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	deepseekPattern = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
	hanPattern      = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
)

func init() {
	add := func(p preTokenizer, names ...string) {
		for _, name := range names {
			preTokenizers.Add(name, p)
		}
	}
	words := []any{byteLevel(true)} // GPT-2's pattern
	add(preTokenizer{steps: words}, "gpt-2", "mellum", "olmo", "granite-docling", "a.x-4.0")
	add(preTokenizer{steps: append([]any{digits(true)}, words...)}, "smollm", "starcoder", "refact", "command-r", "minerva-7b")
	add(preTokenizer{steps: []any{
		object{"type": "Punctuation", "behavior": "Contiguous"}, byteLevel(true), digits(false), splits(`[0-9][0-9][0-9]`)[0],
	}}, "falcon")
	then := func(steps []any, last ...any) []any { return append(append(steps, last...), byteLevel(false)) }
	add(preTokenizer{steps: then(splits(`[\p{P}$+<=>^~|]+`, gpt2Pattern, `\p{N}+`, `[0-9][0-9][0-9]`))}, defaultPre)
	add(preTokenizer{steps: then(splits(llama3Pattern)), ignoreMerges: true, addBOS: true}, "llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "midm-2.0", "lfm2")
	add(preTokenizer{steps: then(splits(llama3Pattern)), ignoreMerges: true}, "glm4", "glm5")
	add(preTokenizer{steps: then(splits(llama3Pattern))}, "dbrx", "smaug-bpe")
	add(preTokenizer{steps: then(splits(qwenPattern)), nfc: true}, "qwen2", "deepseek-r1-qwen", "megrez", "kormo")
	add(preTokenizer{steps: then(splits(qwen35Pattern)), nfc: true}, "qwen35")
	add(preTokenizer{steps: then(splits(seedPattern))}, "seed-coder")
	add(preTokenizer{steps: then(splits(o200kPattern))}, "gpt-4o", "llama4", "kanana2")
	add(preTokenizer{steps: then(splits(tekkenPattern)), ignoreMerges: true, addBOS: true}, "tekken")
	add(preTokenizer{steps: then(splits(`\p{N}{1,3}`, "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", deepseekPattern))}, "deepseek-v3")
	add(preTokenizer{steps: then(splits("[\r\n]", `\s?\p{L}+`, `\s?\p{P}+`, hanPattern), digits(true))}, "deepseek-coder")
}
