package tasks

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// makeSCKV is a JSON object of random keys and values. Its units are pairs that are not asked
// for, its fillers words of one more value.
func makeSCKV(rng *rand.Rand, turns int) (d scDraft) {
	seed := rng.Uint64()
	pair := func(r *rand.Rand) [2]string { return [2]string{randomUUID(r), randomUUID(r)} }
	var asked [][2]string
	for range turns {
		p := pair(rng)
		asked = append(asked, p)
		d.questions = append(d.questions, contextQuestion{fmt.Sprintf("Key: \"%s\"\nThe value associated with the specified key is: ", p[0]), []string{p[1]}})
	}
	others := growing(rng, pair)
	d.context = func(units, fillers, variant int) string {
		list := shuffled{seed: seed}
		for i, p := range slices.Concat(asked, others(units)) {
			list.addWord(fmt.Sprintf("\"%s\": \"%s\"", p[0], p[1]), i)
		}
		if fillers > 0 {
			list.addWord(fmt.Sprintf("\"note\": \"%s\"", noiseFiller(fillers, variant)), -1)
		}
		return "{" + strings.Join(list.words(), ", ") + "}"
	}
	return d
}

const (
	affixLetters = 4  // of the beginning and of the end
	affixLength  = 20 // of a string
)

// makeSCAffix is a list of random strings; the one with a beginning and an end is asked
// for: many share one of the two. The wording is ours.
func makeSCAffix(rng *rand.Rand, turns int) (d scDraft) {
	seed := rng.Uint64()
	taken := make(map[string]bool) // beginnings with ends
	draw := func(r *rand.Rand, like []string) string {
		for {
			s := randomLetters(r, 'a', affixLength)
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
	var asked []string
	for range turns {
		s := draw(rng, nil)
		asked = append(asked, s)
		d.questions = append(d.questions, contextQuestion{fmt.Sprintf("Which string of the list begins with \"%s\" and ends with \"%s\"? Answer with the whole string.", s[:affixLetters], s[affixLength-affixLetters:]), []string{s}})
	}
	others := growing(rng, func(more *rand.Rand) string { return draw(more, asked) })
	d.context = func(units, fillers, variant int) string {
		list := shuffled{seed: seed}
		for i, s := range slices.Concat(asked, others(units)) {
			list.addWord(s, i)
		}
		text := "Here is a list of strings.\n\n" + strings.Join(list.words(), "\n")
		if fillers > 0 {
			text += "\n\n" + noiseFiller(fillers, variant)
		}
		return text
	}
	return d
}

// makeSCVT is a chain of assignments for each turn, in RULER's noise.
func makeSCVT(rng *rand.Rand, turns int) (d scDraft) {
	// The statements of a chain stay in order among the others'.
	type statement struct {
		share float64
		text  string
	}
	var all []statement
	values, names := make(map[string]bool), make(map[string]bool)
	for len(d.questions) < turns {
		c := newVTChain(rng, 5)
		if values[c.value] || slices.ContainsFunc(c.names, func(n string) bool { return names[n] }) {
			continue
		}
		values[c.value] = true
		for _, n := range c.names {
			names[n] = true
		}
		for i, text := range c.statements {
			all = append(all, statement{c.shares[i], text})
		}
		d.questions = append(d.questions, contextQuestion{fmt.Sprintf("Question: Find all variables that are assigned the value %s in the text above. Answer with their names.", c.value), c.names})
	}
	slices.SortStableFunc(all, func(a, b statement) int { return cmp.Compare(a.share, b.share) })
	var statements []string
	var shares []float64
	for _, s := range all {
		statements, shares = append(statements, s.text), append(shares, s.share)
	}
	d.context = func(units, fillers, variant int) string {
		return "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n" +
			vtContext(statements, shares, units, fillers, variant)
	}
	return d
}

// makeSCNeedles is a haystack with a sentence for each turn, none of SCBench's: a model that is too small for those finds
// the numbers. Its units are words of the haystack.
func makeSCNeedles(rng *rand.Rand, turns int) (d scDraft) {
	hay := makeHaystack(rng, niahHaystack)
	var needles []needle
	var texts []string
	var shares []float64
	taken := make(map[string]bool)
	for len(needles) < turns {
		if about := randomPair(rng); !taken[about] {
			taken[about] = true
			n := numberNeedle(about, randomNumber(rng))
			needles, texts, shares = append(needles, n), append(texts, n.text), append(shares, rng.Float64())
		}
	}
	slices.Sort(shares)
	for _, i := range rng.Perm(turns) {
		n := needles[i]
		d.questions = append(d.questions, contextQuestion{n.question + " Answer with nothing but what the text says.", []string{n.answer}})
	}
	d.context = func(units, fillers, variant int) string {
		list := sentences(append(hay.takeWords(0, units), filler(fillers, variant)...))
		return strings.Join(insertAt(list, texts, scattered(shares, len(list))), " ")
	}
	return d
}
