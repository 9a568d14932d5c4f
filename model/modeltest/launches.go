package modeltest

// LaunchBudget is what decoding may take of a CUDA device. A change that needs more changes
// a number here; tests of model and eviction measure all of them.
var LaunchBudget = struct {
	// Around is the launches of a recorded step before the first layer and after the last one:
	// count, embedding, norm; head.
	Around int
	// Layer is the launches of a layer of a recorded step, by golden folder: q k v; heads and
	// pairs; attention; o; sum and norm; gate, up and SiLU; down; sum and norm. LongerLayer
	// is that where the entries of a head are cut into parts.
	Layer       map[string]int
	LongerLayer int
	// Token is the calls of the driver for a token of an answer, by policy and whatever the
	// number of layers: the token, the graph, the lists of its parts or the table of a cache
	// that has changed, four for the draw, and what a policy does after the step.
	Token map[string]int64
}{
	Around: 4,
	Layer: map[string]int{
		"llama3.1": 8, "qwen2": 8, "qwen3": 8, "mistral-window": 8,
		"falcon": 9, // two sums, one before a norm; up, GELU
	},
	LongerLayer: 9,
	Token: map[string]int64{
		"full": 6, "quest": 7, "sparq": 7, "hsa": 7, "exact-topk": 7, "rocketkv": 7, "snapkv:quest": 7,
		"streamingllm": 12, "tova": 18, "h2o": 19,
	},
}
