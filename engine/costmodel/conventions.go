package costmodel

import "glimpse/internal/registry"

// Conventions say what is counted.
type Conventions struct {
	Name string
	// Causal counts the pairs of query and key that causal attention computes, within
	// sliding windows where the model has them. Otherwise every row attends to every entry.
	Causal bool
	// Runtime counts what this program does:
	//
	//   - the LM head;
	//   - the scores: one more product of the observed rows and the keys, where attention
	//     has not computed it already;
	//   - in the last layer only what is read, queries and outputs of the last row and
	//     those observed;
	//   - the keys and values that a pass writes, that attention reads while it computes,
	//     and that an eviction moves; caches that grow with every step;
	//   - laq's second look as the product of the draft's queries, which were kept, and
	//     the keys;
	//   - merging.
	//
	// Otherwise the counts are those that tables 3 and 15 of LookaheadKV (arXiv:2603.10899)
	// come out with:
	//
	//   - neither head nor scores, and all layers alike;
	//   - an attention that computes and then reads its cache, which stays as long as it was
	//     before the first step; a pass over a prompt is not charged for keys and values,
	//     but for writing what is kept of them for later, and low-rank updates wait for
	//     their weights;
	//   - as many steps as the draft has tokens, the last one included;
	//   - laq's second look as a pass of the draft through the whole model, with two
	//     attentions to the prompt;
	//   - tera and giga as 2⁴⁰ and 2³⁰, in the chip's peaks, too.
	Runtime bool
}

// The conventions that are used: the paper's, the same with causal attention, and this
// program's.
var (
	Paper       = Conventions{Name: "paper"}
	PaperCausal = Conventions{Name: "causal", Causal: true}
	Runtime     = Conventions{Name: "runtime", Causal: true, Runtime: true}
)

// AllConventions lists them by name.
var AllConventions = registry.Registry[Conventions]{Noun: "conventions"}

func init() {
	for _, c := range []Conventions{Paper, PaperCausal, Runtime} {
		AllConventions.Add(c.Name, c)
	}
}
