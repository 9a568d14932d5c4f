// Package kvcache holds what layers know of one sequence: keys and values of all its rows or of a window, or a state. Entries can be
// evicted per layer and KV head. What stays keeps its position, and the memory of the rest is really freed.
package kvcache
