package tasks

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// The texts of variable tracking are RULER's, scripts/data/synthetic/constants.py,
// with its misspelling.
const (
	vtTemplate = "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n%s\nQuestion: Find all variables that are assigned the value %s in the text above."
	vtBegin    = " Answer: According to the chain(s) of variable assignment in the text above, %d variables are assgined the value %s, they are: "
	vtHops     = 4
	// vtExample is how many tokens a worked example has at most: RULER's 500, less its answer.
	vtExample = 470
)

// vtChain is one chain of assignments and the value that all its variables have.
type vtChain struct {
	names      []string
	statements []string
	value      string
	shares     []float64 // of the noise before each statement
}

func newVTChain(rng *rand.Rand, letters int) vtChain {
	c := vtChain{value: fmt.Sprint(10000 + rng.IntN(89999))}
	for len(c.names) <= vtHops {
		if name := randomLetters(rng, 'A', letters); !slices.Contains(c.names, name) {
			c.names = append(c.names, name)
		}
	}
	c.statements = []string{"VAR " + c.names[0] + " = " + c.value}
	for i := range vtHops {
		c.statements = append(c.statements, fmt.Sprintf("VAR %s = VAR %s ", c.names[i+1], c.names[i]))
	}
	for range c.statements {
		c.shares = append(c.shares, rng.Float64())
	}
	slices.Sort(c.shares)
	return c
}

// chainQuestion is the question for the chain in so many lines of noise.
func (c vtChain) chainQuestion(units, fillers, variant int) (user, begin string) {
	context := vtContext(c.statements, c.shares, units, fillers, variant)
	return fmt.Sprintf(vtTemplate, context, c.value), fmt.Sprintf(vtBegin, len(c.names), c.value)
}

// vtContext is so many lines of noise with statements among them.
func vtContext(statements []string, shares []float64, units, fillers, variant int) string {
	lines := insertAt(slices.Repeat([]string{noise + "\n"}, units), statements, scattered(shares, units))
	if fillers > 0 {
		lines = append(lines, noiseFiller(fillers, variant)+"\n")
	}
	return strings.ReplaceAll(strings.Join(lines, " "), ". \n", ".\n")
}

// makeVT makes the prompt of one chain of four hops: a worked example, and the question. Its units are lines of
// noise. The example is as long as RULER's where the prompt has room for it, and otherwise an eighth of it.
func makeVT(r *ruler, rng *rand.Rand, length, _ int) (draft, error) {
	chain, other, example := newVTChain(rng, 5), newVTChain(rng, 3), ""
	room := min(vtExample, length/8)
	shown := func(n int) ([]int32, error) {
		user, begin := other.chainQuestion(n, 0, 0)
		example = user + begin + " " + strings.Join(other.names, " ")
		return r.setting.Model.Tokenizer.Encode(example, false)
	}
	n, _, err := most(room, shown)
	if err != nil && err != errTooLong {
		return draft{}, fmt.Errorf("tokenize: %w", err)
	}
	_, err = shown(n) // the last that was tried may have been too long
	return draft{variants: len(fillerEnds), answers: chain.names, text: func(units, fillers, variant int) (user, begin string, err error) {
		user, begin = chain.chainQuestion(units, fillers, variant)
		return example + "\n\n\n\n" + user, begin, nil
	}}, err
}
