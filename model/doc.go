// Package model runs frozen language models: it reads a Hugging Face folder,
// keeps a key-value cache whose entries can be evicted per layer and KV head,
// and generates text.
//
// A [Model] is immutable and shared. A [Runner] runs it on one goroutine and
// owns the scratch memory of its passes; a [Cache] holds the keys and values of
// one sequence.
//
//	m, err := model.Open("path/to/folder", model.Options{})
//	r := m.NewRunner()
//	cache := m.NewCache()
//	logits, err := r.Prefill(ctx, cache, tokens, model.PrefillOptions{})
//
// A model family (config.json, tensor names) is one file that registers a
// [Family].
//
// # Observation
//
// Eviction policies and the trainer need to know which prompt entries some rows
// of queries attend to. Every such row is described by a [Prober]: rows that are
// appended after the prompt, run through the model, observed and dropped, without
// a trace in the cache. Learned lookahead rows, soft tokens, pseudo-queries and
// the tokens of a response are all Probers. [Capture] says what one pass is to
// observe, so that nothing else is computed.
package model
