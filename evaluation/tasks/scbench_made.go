package tasks

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// scKV is a JSON object of random keys and values. Its units are pairs that are not asked
// for, its fillers words of one more value.
type scKV struct {
	asked [][2]string
	other func(n int) [][2]string
	seed  uint64
}

func makeSCKV(rng *rand.Rand, turns, _ int) scDraft {
	d := &scKV{seed: rng.Uint64()}
	pair := func(r *rand.Rand) [2]string { return [2]string{randomUUID(r), randomUUID(r)} }
	for range turns {
		d.asked = append(d.asked, pair(rng))
	}
	more := rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
	var made [][2]string
	d.other = func(n int) [][2]string {
		for len(made) < n {
			made = append(made, pair(more))
		}
		return made[:n]
	}
	return d
}

func (d *scKV) variants() int { return len(fillerEnds) }

func (d *scKV) questions() []scTurn {
	var out []scTurn
	for _, p := range d.asked {
		out = append(out, scTurn{fmt.Sprintf("Key: \"%s\"\nThe value associated with the specified key is: ", p[0]), []string{p[1]}})
	}
	return out
}

func (d *scKV) context(units, fillers, variant int) (string, error) {
	list := shuffled{seed: d.seed}
	for i, p := range slices.Concat(d.asked, d.other(units)) {
		list.add(fmt.Sprintf("\"%s\": \"%s\"", p[0], p[1]), i)
	}
	if fillers > 0 {
		list.add(fmt.Sprintf("\"note\": \"%s\"", noiseFiller(fillers, variant)), -1)
	}
	return "{" + strings.Join(list.words(), ", ") + "}", nil
}

// scAffix is a list of random strings, of which the one with a beginning and an end is asked
// for: many share one of the two. The wording is ours.
type scAffix struct {
	asked []string
	other func(n int) []string
	seed  uint64
}

const (
	affixLetters = 4  // of the beginning and of the end
	affixLength  = 20 // of a string
)

func makeSCAffix(rng *rand.Rand, turns, _ int) scDraft {
	d := &scAffix{seed: rng.Uint64()}
	letters := func(r *rand.Rand, n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = 'a' + byte(r.IntN(26))
		}
		return string(b)
	}
	taken := make(map[string]bool) // beginnings with ends
	draw := func(r *rand.Rand, like []string) string {
		for {
			s := letters(r, affixLength)
			// Every other one shares its beginning or its end with one that is asked for.
			if len(like) > 0 {
				switch same := like[r.IntN(len(like))]; r.IntN(4) {
				case 0:
					s = same[:affixLetters] + s[affixLetters:]
				case 1:
					s = s[:affixLength-affixLetters] + same[affixLength-affixLetters:]
				}
			}
			if key := s[:affixLetters] + s[affixLength-affixLetters:]; !taken[key] {
				taken[key] = true
				return s
			}
		}
	}
	for range turns {
		d.asked = append(d.asked, draw(rng, nil))
	}
	more := rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
	var made []string
	d.other = func(n int) []string {
		for len(made) < n {
			made = append(made, draw(more, d.asked))
		}
		return made[:n]
	}
	return d
}

func (d *scAffix) variants() int { return len(fillerEnds) }

func (d *scAffix) questions() []scTurn {
	var out []scTurn
	for _, s := range d.asked {
		out = append(out, scTurn{fmt.Sprintf("Which string of the list begins with \"%s\" and ends with \"%s\"? Answer with the whole string.", s[:affixLetters], s[affixLength-affixLetters:]), []string{s}})
	}
	return out
}

func (d *scAffix) context(units, fillers, variant int) (string, error) {
	list := shuffled{seed: d.seed}
	for i, s := range slices.Concat(d.asked, d.other(units)) {
		list.add(s, i)
	}
	text := "Here is a list of strings.\n\n" + strings.Join(list.words(), "\n")
	if fillers > 0 {
		text += "\n\n" + noiseFiller(fillers, variant)
	}
	return text, nil
}

// scVT is a chain of assignments for each turn, in RULER's noise.
type scVT struct {
	chains     []vtChain
	statements []string
	shares     []float64
}

func makeSCVT(rng *rand.Rand, turns, _ int) scDraft {
	d := new(scVT)
	values, names := make(map[string]bool), make(map[string]bool)
	for len(d.chains) < turns {
		c := newVTChain(rng, 5)
		if values[c.value] || slices.ContainsFunc(c.names, func(n string) bool { return names[n] }) {
			continue
		}
		values[c.value] = true
		for _, n := range c.names {
			names[n] = true
		}
		d.chains = append(d.chains, c)
	}
	// The statements of a chain stay in order among those of the others.
	type statement struct {
		share float64
		text  string
	}
	var all []statement
	for _, c := range d.chains {
		for i, text := range c.statements {
			all = append(all, statement{c.shares[i], text})
		}
	}
	slices.SortStableFunc(all, func(a, b statement) int {
		switch {
		case a.share < b.share:
			return -1
		case a.share > b.share:
			return 1
		}
		return 0
	})
	for _, s := range all {
		d.statements, d.shares = append(d.statements, s.text), append(d.shares, s.share)
	}
	return d
}

func (d *scVT) variants() int { return len(fillerEnds) }

func (d *scVT) questions() []scTurn {
	var out []scTurn
	for _, c := range d.chains {
		out = append(out, scTurn{fmt.Sprintf("Question: Find all variables that are assigned the value %s in the text above. Answer with their names.", c.value), c.names})
	}
	return out
}

func (d *scVT) context(units, fillers, variant int) (string, error) {
	return "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n" +
		vtContext(d.statements, d.shares, units, fillers, variant), nil
}

// scNeedles is a haystack with a sentence for each turn, none of SCBench's: a model that is too small for those finds
// the numbers. Its units are words of the haystack.
type scNeedles struct {
	needles []needle
	order   []int // in which they are asked for
	shares  []float64
	hay     *haystack
}

func makeSCNeedles(rng *rand.Rand, turns, _ int) scDraft {
	d := &scNeedles{hay: makeHaystack(rng, niahHaystack)}
	taken := make(map[string]bool)
	for len(d.needles) < turns {
		if about := randomPair(rng); !taken[about] {
			taken[about] = true
			d.needles, d.shares = append(d.needles, numberNeedle(about, randomNumber(rng))), append(d.shares, rng.Float64())
		}
	}
	slices.Sort(d.shares)
	d.order = rng.Perm(turns)
	return d
}

func (d *scNeedles) variants() int { return len(fillerEnds) }

func (d *scNeedles) questions() []scTurn {
	var out []scTurn
	for _, i := range d.order {
		n := d.needles[i]
		out = append(out, scTurn{n.question + " Answer with nothing but what the text says.", []string{n.answer}})
	}
	return out
}

func (d *scNeedles) context(units, fillers, variant int) (string, error) {
	var texts []string
	for _, n := range d.needles {
		texts = append(texts, n.text)
	}
	list := sentences(append(d.hay.take(0, units), filler(fillers, variant)...))
	return strings.Join(insertAt(list, texts, scattered(d.shares, len(list))), " "), nil
}
