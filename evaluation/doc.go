// Package evaluation measures what eviction costs and saves.
//
// The unit of a result is a [Row]: one policy at one budget on one task, with its
// accuracy against exact answers, the standard error of that, and what it held and
// took: bytes really kept, time to first token, decoding speed. Rows go to JSON for
// machines ([WriteJSON]); package report makes tables, plots and
// documents of them for people.
//
// Policies are compared by their macro mean over tasks ([MeanByPolicy]): every task
// counts alike, and its standard error is √(Σ se²)/T for T tasks. A policy without a
// result on some task has no such mean rather than one over fewer tasks. Measures
// that were not taken are nil, absent from JSON, and a dash in a table, never a
// zero or NaN.
//
//	rows := []evaluation.Row{
//		{Policy: "full", Task: "hops", Tokens: 512, Samples: 64, Score: new(0.91),
//			StdErr: new(stats.BinomialStdErr(0.91, 64)), KeptBytes: 1 << 20, FullBytes: 1 << 20},
//		{Policy: "snapkv", Budget: eviction.Pairs(64), Task: "hops", Tokens: 512, Samples: 64, Score: new(0.44),
//			StdErr: new(stats.BinomialStdErr(0.44, 64)), KeptBytes: 1 << 17, FullBytes: 1 << 20,
//			HitRate: new(0.61)},
//	}
//	err := evaluation.WriteJSON(os.Stdout, rows)
package evaluation
