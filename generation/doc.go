// Package generation makes the responses that adapters are trained on: prompts in, the
// model's own responses out as token ids (LookaheadKV, arXiv:2603.10899, §4.1; Judge Q,
// arXiv:2509.10798, app. A.1).
//
// A [Job] is a generation as a file and flags describe it: prompts.go reads and prepares its
// prompts, generate.go answers them several at a time, units.go says what a unit of work is, which
// any number of processes claim, and output.go makes files of what comes of them.
package generation
