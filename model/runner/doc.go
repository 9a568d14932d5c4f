// Package runner runs models: prompts in chunks and in units, probes that are observed and dropped,
// decoding steps alone and in batches, steps that a device has recorded, and the drawing of tokens.
//
// A [Runner] belongs to one goroutine and owns the scratch memory of its passes. [Capture] says what a
// pass is to observe, so that nothing else is computed.
package runner
