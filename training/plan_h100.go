package training

import (
	"math"

	"glimpse/kernels"
	"glimpse/model"
)

// What the computed time of an H100 stands on, as lab/results/gpu-design.md has it: nothing of it is
// measured.
const (
	h100Products  = 790e12 // operations a second of large products in bf16, of 989e12 at most
	h100Attention = 0.6 * 790e12
	h100Memory    = 2.9e12 // bytes a second of 3.35e12 at most
	h100Share     = 0.8    // of a step that is products, attention and reading weights
	h100Bytes     = 80e9
	h100Launch    = 2.5e-6 // seconds of a small launch in a graph
	// Launches of a layer: of a chunk of a prompt or of a row that is decoded, and of a
	// learned pass forward and back.
	passLaunches, learnedLaunches = 19, 52
	h100Chunk                     = 4096 // rows, about
)

// PlanH100 is what a run would take on one H100 SXM, computed from its operations.
type PlanH100 struct {
	StepSeconds  float64 `json:"step_seconds"`
	TotalSeconds float64 `json:"total_seconds"`
	Memory       int64   `json:"memory_bytes"` // weights and caches in bf16, one sample at a time
	Fits         bool    `json:"fits"`         // into its 80 GB
}

// h100Assumed says what the times stand on.
const h100Assumed = "790 TFLOP/s in products, 60% of it in attention, weights read at 2.9 TB/s, 80% of a step spent on these, 2.5 µs for a launch"

// addH100 computes the times of an H100 for a sample of the mean length, and the memory for
// the longest one.
func (p *Plan) addH100(m *model.Model, c Config, o PlanOptions, w work) {
	weights := 2 * float64(modelParameters(m))
	// Few rows wait for the weights: the target's, and each adapter's forward and back.
	few := func(x part, passes float64) float64 {
		return max(2*x.products/h100Products, passes*weights/h100Memory) + 2*x.attention/h100Attention
	}
	passes := 1.0
	if o.Generated {
		passes += float64(o.Response)
	}
	s := (few(w.prefill, 1) + few(w.target, passes) + few(w.rows, 2*float64(len(c.Adapters)))) / h100Share
	launches := passLaunches*(math.Ceil(float64(o.Prompt)/h100Chunk)+passes) + learnedLaunches*float64(len(c.Adapters))
	s += float64(m.Config.Layers) * launches * h100Launch
	p.H100.StepSeconds = s * float64(c.Batch)
	p.H100.TotalSeconds = p.H100.StepSeconds * float64(c.Steps)

	k := &p.Memory
	workers := int64(max(1, p.Workers))
	cache := m.Config.CacheBytes(o.Prompt, kernels.BF16) + 4*int64(o.Prompt*m.Config.Layers*m.Config.Heads)
	p.H100.Memory = int64(weights) + cache + k.Activations/workers + k.Adapters + k.Optimiser + k.Samples
	p.H100.Fits = p.H100.Memory <= h100Bytes
}
