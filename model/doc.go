// Package model says what a frozen language model is: its configuration, its weights by their names, the
// families of Hugging Face folders and GGUF files, and what a decoder layer computes.
//
// A [Model] is immutable and shared. Package runner runs one on one goroutine, and package kvcache
// holds the keys and values of a sequence.
//
//	m, err := model.Open("path/to/folder", model.Options{})
//	r := runner.New(m)
//	cache := kvcache.New(m)
//	logits, err := r.Prefill(ctx, cache, tokens, runner.PrefillOptions{})
//
// A model family (config.json, tensor names) is one file that registers a
// [Family].
//
// # The decoder layer
//
// What a layer computes is said once, in [RunLayer], over operations that a pass gives it
// ([LayerOps]): prefill in chunks, appended probes, decoding, batches, recorded steps and
// the student's graph in package training differ in where their rows come from, how they
// attend and what of them is read later. To change an architecture, change RunLayer; a
// weight that is new is a field of [Layer] and a line of its family's Bind.
//
// # Observation
//
// Eviction policies and the trainer need to know which prompt entries some rows
// of queries attend to. [QueryRows] are appended after the prompt, run through the
// model, observed and dropped, without a trace in the cache: learned lookahead rows, soft
// tokens, pseudo-queries, the tokens of a response. runner.Capture says what one pass is to
// observe, so that nothing else is computed.
package model
