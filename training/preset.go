package training

import (
	"math"
	"strings"

	"glimpse/internal/registry"
	"glimpse/model"
)

// Preset is the hyper-parameters of a paper.
type Preset struct {
	Doc    string
	Config Config // without adapters
	// Epochs over the data, where the paper counts those; Config.Steps then holds for
	// data without an end.
	Epochs int
	// Adapter has no learning rate: Rate gives it.
	Adapter AdapterConfig
	// Rate is the peak learning rate for a model of the architecture (config.json
	// architectures[0]).
	Rate      func(architecture string) float64
	MaxPrompt int // of the training data
}

// randomRows starts rows from noise alone: LookaheadKV's are "randomly initialized"
// (§3), and Judge Q's extend the vocabulary, whose new entries are random unless
// something else is said (§4).
const randomRows = -1

// Presets lists them by name.
var Presets = registry.Registry[Preset]{Noun: "preset"}

func init() {
	lookahead := DefaultConfig()
	lookahead.Steps, lookahead.Batch, lookahead.MaxResponse = 7600, 32, 512
	lookahead.Schedule, lookahead.Warmup, lookahead.WarmupRatio, lookahead.FinalRatio = "cosine", 0, 0.02, 0
	lookahead.Beta1, lookahead.Beta2, lookahead.Clip, lookahead.WeightDecay = 0.9, 0.95, 1, 0
	Presets.Add("lookaheadkv", Preset{
		Doc:    "LookaheadKV: Adam, 7600 steps of 32 samples (arXiv:2603.10899, table 16, §4.1)",
		Config: lookahead, MaxPrompt: 16384,
		Adapter: AdapterConfig{
			Kind: "lookaheadkv", Pooling: 7,
			AdapterConfig: model.AdapterConfig{Rows: 32, Rank: 8, Alpha: 32, Modules: model.Modules, InitToken: randomRows, InitNoise: 1},
		},
		Rate: func(architecture string) float64 {
			if strings.HasPrefix(architecture, "Qwen") {
				return 2e-4
			}
			return 1e-3
		},
	})
	// The paper names AdamW without its settings: those are PyTorch's defaults, which
	// its training code stands on. No schedule and no clipping are stated.
	judge := DefaultConfig()
	const samples, epochs, batch = 50000, 3, 32
	judge.Steps, judge.Batch, judge.MaxResponse = int(math.Ceil(samples*epochs/float64(batch))), batch, 512
	judge.Schedule, judge.Warmup, judge.FinalRatio = "constant", 0, 1
	judge.Beta1, judge.Beta2, judge.Clip, judge.WeightDecay = 0.9, 0.999, 0, 0.01
	Presets.Add("judgeq", Preset{
		Doc:    "Judge Q: AdamW, 3 epochs of 50,000 samples in batches of 32, constant rate (arXiv:2509.10798, table 7, app. A)",
		Config: judge, Epochs: epochs, MaxPrompt: 16384,
		Adapter: AdapterConfig{Kind: "judgeq", Pooling: 1, AdapterConfig: model.AdapterConfig{Rows: 32, InitToken: randomRows, InitNoise: 1}},
		Rate:    func(string) float64 { return 5e-5 },
	})
}

// StepsOf is the number of steps that go through so many samples in epochs.
func StepsOf(epochs, samples, batch int) int {
	return max(1, int(math.Ceil(float64(epochs)*float64(samples)/float64(batch))))
}
