// Package eviction decides which prompt entries a key-value cache keeps, and
// runs models with the cache so evicted.
//
// A policy is one file that registers itself in [Policies]. What it registers
// makes a [Method], the policy with its options resolved, whose [Plan] says what it
// wants of a prompt. The least is to say what to observe of a pass over the prompt and
// to turn one layer's observation into a score per KV head and entry. Everything else is
// a field of the plan that may be left empty: protected sinks and recent entries, budgets
// that differ between layers or KV heads, a draft, by the model on what was evicted or by
// another model, merging what goes into what stays, eviction while decoding, decoding that
// reads a few of the entries it holds. What runs a prompt ([Session]), measures it ([Study]),
// counts its memory ([NewFootprint]) or its operations ([Workload]) reads the plan.
//
// The policies adakv and compose take the plan of another one, with its scores,
// and select by rules of their own. A policy is a scorer for them if it says so when
// it registers. [TwoStage] makes one policy of an eviction of the prompt and a sparse
// one.
//
// A policy is stated once, by the operations of a backend ([kernels.Selector]): [Scores]
// are computed where the observations lie, and so are the selections, sums
// ([Accumulated]) and pages ([SparsePages]). On a device the host sees none of them; on
// the host they cost nothing to read. The package's example is a whole policy.
//
// A [Runtime] runs a prompt layer by layer: each layer's cache is evicted before
// the next layer is computed, so the peak is one layer's full cache and what is
// kept of the layers before it (LookaheadKV, arXiv:2603.10899, algorithm 2).
//
// A [Session] is a conversation: every turn's prompt is appended to what the policy
// kept of the turns before, and it counts the bytes that decoding reads. It generates an
// answer or is given one ([Session.Force]): the log-probabilities of given tokens are what
// perplexity and the cost of an eviction are measured by. A [runner.Batch] decodes the answers of
// several sessions together.
//
// # Budgets
//
// A budget is a number of key-value pairs kept per KV head and layer after the
// prefill, sinks and recent window included. A prompt that is no longer than the
// budget is left alone. A sparse policy may hold more: its budget is what a decoding
// step reads, in pairs per KV head and layer, estimation included. Ties go to the
// lower position. Kept entries keep their positions, and decoding goes on where the
// prompt ended.
package eviction
