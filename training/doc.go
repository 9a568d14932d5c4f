// Package training trains adapters. A run trains a list of them in one pass over the
// data: every sample's prompt is prefilled once, and its target computed once, for all
// of them.
//
// The life of a sample, file by file:
//
//	sample.go     a Source gives prompt and response (datasets makes or reads them)
//	prepare.go    prefill: the prompt's keys and values, forward only
//	              target: the response's rows on top of them; the logarithm of the mean
//	              attention that they pay to the prompt, per layer and query head
//	forward.go    the student's graph: an adapter's rows on top of the same keys and
//	              values, and the loss of their scores against the target; backward
//	              reaches the rows and the LoRA factors, base weights are constants
//	step.go       a batch: the workers add losses and gradients in the order of samples
//	optimizer.go  clipping, schedule, AdamW
//	ranks.go      the same over several processes, with the bits of one
//	run.go        step after step, until the last one or until nothing gets better
//
// Beside them: pairs.go (pair files, and which of them are held out), validate.go and
// quality.go (held-out samples, best parameters, early stopping), state.go (checkpoints,
// from which a run goes on bit for bit), record.go and curves.go (what a run writes down of
// its steps), export.go and folder.go (adapters as they are stored, and where a run has
// them), cache.go (prepared samples of data that comes again), measure.go, forecast.go and
// plan*.go (what a step costs). Package runs makes a run of a configuration file.
//
// The cost of a step is one prefill plus a few percent: the target and the students read
// the keys and values of the one prefill, and nothing is stored per prompt token for a
// backward pass.
//
// Samples of one batch may be worked on at the same time; their gradients are added in
// the order of the samples, so that the number of threads changes no bit of the result.
package training
