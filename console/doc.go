// Package console answers prompts and holds conversations with a model whose cache is
// evicted: it reads the prompt, streams the answer and reports what the policy kept, held
// and read.
package console
