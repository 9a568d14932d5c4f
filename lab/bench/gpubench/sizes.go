package main

// sizes are the model and the lengths that are measured.
type sizes struct {
	name, config string

	copyBytes, product int // of the ceilings
	weights            [][2]int
	prefill            []int
	ttft               []int
	ttftBudget, draft  int
	contexts           []int // of decoding with the full cache
	budgetContexts     []int // and with budgets
	budgets            []int
	steps              int // decoded
	train              []int
	response           int
	limited            int    // prompt of the training step in little memory
	limit              string // that memory
	batch              [][2]int
	memory             string // of the batches
	maxBatch           int
}

// full is Llama-3.1-8B (LookaheadKV, arXiv:2603.10899, table 3; RocketKV, arXiv:2502.14051, figure 7; D2O,
// arXiv:2406.13035, table 5).
var full = sizes{
	name: "Llama-3.1-8B",
	config: `{"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
"num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072,
"rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
"rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}}`,
	copyBytes: 4 << 30, product: 8192,
	weights: [][2]int{{4096, 4096}, {1024, 4096}, {14336, 4096}, {4096, 14336}, {128256, 4096}},
	prefill: []int{4096, 8192, 16384, 32768},
	ttft:    []int{8192, 32768}, ttftBudget: 128, draft: 32,
	contexts: []int{8192, 16384, 32768, 65536, 98304}, budgetContexts: []int{8192, 98304}, budgets: []int{128, 256, 512, 1024, 2048}, steps: 32,
	train: []int{2048, 8192, 16384}, response: 512, limited: 16384, limit: "24GB",
	batch: [][2]int{{256, 1024}, {512, 2048}, {1024, 4096}, {2048, 8192}}, maxBatch: 512, memory: "80GB",
}

// tiny is for trying the measurements without a GPU.
var tiny = sizes{
	name: "tiny",
	config: `{"architectures": ["LlamaForCausalLM"], "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
"num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 48, "vocab_size": 64, "max_position_embeddings": 512,
"rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16"}`,
	copyBytes: 1 << 16, product: 32,
	weights: [][2]int{{32, 32}, {48, 32}},
	prefill: []int{32, 64},
	ttft:    []int{32, 64}, ttftBudget: 8, draft: 2,
	contexts: []int{32, 64}, budgetContexts: []int{64}, budgets: []int{8, 16}, steps: 3,
	train: []int{32, 64}, response: 8, limited: 64, limit: "8MB",
	batch: [][2]int{{8, 24}}, maxBatch: 4, memory: "4MB",
}
