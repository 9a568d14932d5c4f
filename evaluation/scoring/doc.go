// Package scoring scores texts: what a model answered against what a benchmark
// accepts. A [Metric] is a pure function of the two with values in [0, 1]; all of
// them are in [Metrics] by name. They follow the rules with which published
// numbers were computed, including what those rules get wrong, because a number is
// only comparable with one from the same rule; where a rule has variants, each
// has its own name.
//
//	metric, err := scoring.Metrics.Lookup("qa_f1")
//	score, err := metric.Score("in Paris, France", scoring.Reference{Answers: []string{"Paris"}})
//
// Every metric is tested against the Python package or rule that it names, on the
// cases that lab/golden/golden_scoring.py wrote.
package scoring
