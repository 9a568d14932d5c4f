// Package train trains adapters. A run trains a list of them in one pass over the
// data: every sample's prompt is prefilled once, and its target computed once,
// for all of them.
//
// One sample costs
//
//  1. a prefill of the prompt, forward only, that keeps keys and values;
//  2. the response's tokens on top of that cache, whose attention on the prompt is
//     the target;
//  3. per adapter, its rows on top of that cache as a gorgonia graph, forward and
//     backward. Gradients reach the rows and the LoRA factors; the base model's
//     weights are constants of the graph's operations.
//
// Samples of one batch may be worked on at the same time; their gradients are
// added in the order of the samples, so that the number of threads does not
// change a bit of the result.
package training
