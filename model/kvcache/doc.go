// Package kvcache holds the keys and values of one sequence. Its entries can be evicted per layer
// and KV head. What stays keeps its position, and the memory of the rest is really freed.
package kvcache
