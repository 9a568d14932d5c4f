package cpu

import (
	"glimpse/internal/simd"
	"glimpse/kernels"
)

// biasesOf are the biases of the entries from the given one on; nil where none of them has one.
func biasesOf(kv kernels.KV, from int) []float32 {
	if from >= kv.Biased() {
		return nil
	}
	return kv.Bias.F32()[from:]
}

// addBiases adds biases from the given one on to the first logits that have one.
func addBiases(logits, biases []float32, from int) {
	if n := min(len(logits), len(biases)-from); n > 0 {
		simd.Add(logits[:n], logits[:n], biases[from:][:n])
	}
}
