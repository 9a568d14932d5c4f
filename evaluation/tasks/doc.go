// Package tasks holds the benchmarks, one file each, that register themselves in
// evaluation.Tasks. A program that evaluates imports it for that.
package tasks
