// Package runs is an evaluation as flags and files describe it: models, policies, budgets
// and tasks, a folder with what comes of them, and going on where a run has stopped.
package runs
