// Package runs makes a training run of a configuration: [Spec] is the file, read over
// defaults and a paper's preset and under a command line; Run resolves it against model and
// data, trains, keeps checkpoints and records, and delivers the adapters. A sweep is several
// runs over a grid.
package runs
