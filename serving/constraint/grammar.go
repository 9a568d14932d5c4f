package constraint

import "fmt"

// Grammar is a language over bytes: the texts that an answer may be. It is immutable and
// safe for concurrent use.
type Grammar struct{ root *rule }

// parsed finishes the grammar of a text, which errors name.
func parsed(root *rule, text string) (*Grammar, error) {
	if err := finish(root, true); err != nil {
		return nil, fmt.Errorf("%s: %w", text, err)
	}
	return &Grammar{root}, nil
}

// combined is a grammar made of others by a program.
func combined(name string, body *expr) *Grammar { return &Grammar{made(&rule{name: name, body: body})} }

// made finishes a rule of a program, whose mistakes are panics.
func made(r *rule) *rule {
	if err := finish(r, false); err != nil {
		panic(fmt.Sprintf("constraint: %v", err))
	}
	return r
}

// Literal admits one text.
func Literal(s string) *Grammar { return combined("literal", lit(s)) }

// Choice admits each of the options; there is at least one.
func Choice(options ...string) *Grammar { return combined("choice", words(options)) }

// Sequence admits the texts of its parts, one after the other.
func Sequence(g ...*Grammar) *Grammar { return combined("sequence", seq(references(g)...)) }

// Any admits the texts of each of its parts; there is at least one.
func Any(g ...*Grammar) *Grammar { return combined("alternation", alt(references(g)...)) }

// Repeat admits min to max texts of g, one after the other; without an upper bound if max
// is negative.
func Repeat(g *Grammar, min, max int) *Grammar {
	if max < 0 {
		max = unbounded
	}
	if min < 0 || max != unbounded && max < min || min > maxRepeat || max > maxRepeat {
		panic(fmt.Sprintf("constraint: Repeat from %d to %d times, want 0 ≤ min ≤ max ≤ %d", min, max, maxRepeat))
	}
	return combined("repetition", rep(ref(g.root), min, max))
}

// maxRepeat bounds the counts of repetitions.
const maxRepeat = 1 << 24

func references(list []*Grammar) []*expr {
	out := make([]*expr, len(list))
	for i, g := range list {
		out[i] = ref(g.root)
	}
	return out
}
