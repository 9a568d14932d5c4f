// Package archtest holds the project's folders to their order. It has no code of
// its own: its test reads the imports of every Go file of the repository, also
// behind build tags and in tests, and fails where one points
// upwards or sideways.
//
// Lines, highest first:
//
//	cmd/*  scripts/*                             programs
//	console  serving  evaluation  training  generation
//	engine        jobs
//	adapters      labels
//	eviction  gates  lora  softtokens  losses
//	autodiff  model
//	checkpoints
//	kernels  datasets
//	internal/*                                   leaves
//
// A package imports only from lower lines; siblings on one line never import each
// other and meet through interfaces that a lower line owns. Sub-packages belong to
// their folder (evaluation/tasks to evaluation) and import within it freely, but for the ones in
// kernels and model, whose rooms have an order of their own. Leaves may also
// import other leaves. Programs are imported by nobody. Gorgonia and its companion
// modules are imported under autodiff only, so that every other package can be
// built and read without knowing a graph; autodiff itself by training only, and training
// by cmd/train, so that evict links none of it. What commands share (internal/cli) is
// imported by them and its test helper only. A folder that the table does not name is
// an error: a new one is added here deliberately or not at all.
//
// The files are opened by the test itself rather than listed by the go command:
// opened files make a cached test result stale, and files that the current build
// leaves out are read like any other.
package archtest
