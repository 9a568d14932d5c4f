// Package stats has the few statistics that evaluations and eviction policies
// need: means with standard errors, and measures of agreement between two
// rankings of the same cache entries (Kendall's τ-b, recall at k).
package stats
