// Package costmodel counts what a policy costs without running it: the floating-point
// operations and the bytes of the pass over a prompt, of a policy's additions to it and of the
// decoding steps on what it keeps, and the time that a given chip would take at best. It
// needs a model's shapes and no weights.
//
// The counts are of matrix products and attention, the time of an operation is the larger of
// computing and of moving bytes, at the share of the chip's peaks that is reached in practice
// (LookaheadKV, Ahn et al. 2026, arXiv:2603.10899, app. B, after Davies et al. 2025,
// arXiv:2507.14397). Two [Conventions] are there: the paper's, under which the
// theoretical columns of its tables 3 and 15 come out (75 of 76 numbers to the last printed
// digit), and this program's, which leaves out what no one reads and counts the
// scores.
//
// These are formulas. Plans of training count the operations of a run on a model that computes nothing ([Chip.Cost]). Such a count
// has no conventions of a paper, reads the weights for each chunk of a prompt, and runs two steps of an answer. It takes seconds
// for a policy and a prompt of 32768 tokens.
//
//	m, err := model.OpenShapes("Llama-3.1-8B-Instruct", "cpu")
//	...
//	costs := costmodel.New(m, costmodel.H100PCIe, costmodel.Runtime)
//	e := costs.Estimate(policy, costmodel.Run{Tokens: 32768, Budget: 128, MaxNew: 256})
//	fmt.Println(e.TTFT.Seconds, e.Overhead)
package costmodel
