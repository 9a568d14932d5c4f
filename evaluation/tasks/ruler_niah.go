package tasks

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// rulerKind makes keys or values.
type rulerKind struct {
	name string // as the prompt calls them
	draw func(*rand.Rand) string
}

var (
	words    = rulerKind{"words", randomPair}
	numerals = rulerKind{"numbers", randomNumber}
	uuids    = rulerKind{"uuids", randomUUID}
)

// rulerHay is what the needles stand in.
type rulerHay int

const (
	hayNoise   rulerHay = iota // the same line again and again
	hayEssay                   // running text
	hayNeedles                 // other needles
)

// rulerNeedles is one configuration of the needle tasks: k keys with v values each, q of
// them asked for.
type rulerNeedles struct {
	haystack     rulerHay
	keys, values rulerKind
	k, v, q      int
}

// The texts are RULER's, scripts/data/synthetic/constants.py.
const (
	rulerNeedle       = "One of the special magic %s for %s is: %s."
	rulerNIAHTemplate = "Some special magic {values} are hidden within the following text. Make sure to memorize it. I will quiz you about the {values} afterwards.\n{context}\nWhat are all the special magic {values} for {query} mentioned in the provided text?"
	rulerNIAHBegin    = " The special magic {values} for {query} mentioned in the provided text are"
)

// essayDepths are the shares of the text, in percent, between which needles are drawn.
var essayDepths = func() (out [40]float64) {
	for i := range out {
		out[i] = math.RoundToEven(100 * float64(i) / 39)
	}
	return out
}()

func rulerNIAH(name string, n rulerNeedles) rulerTask {
	return rulerTask{name: name, maxNew: 128, metric: rulerAll, needles: n, make: n.draft}
}

// draft is a prompt. Its units are words of running text, or lines.
func (n rulerNeedles) draft(r *ruler, rng *rand.Rand, length, _ int) (draft, error) {
	d := draft{variants: len(fillerEnds)}
	var keys, needles []string // needles in the order in which they stand
	var shares []float64       // of the haystack before each
	values := make(map[string][]string)
	for len(keys) < n.k {
		key := n.keys.draw(rng)
		if values[key] != nil {
			continue
		}
		keys = append(keys, key)
		for range n.v {
			value := n.values.draw(rng)
			values[key] = append(values[key], value)
			needles = append(needles, fmt.Sprintf(rulerNeedle, n.values.name, key, value))
		}
	}
	rng.Shuffle(len(needles), func(i, j int) { needles[i], needles[j] = needles[j], needles[i] })
	depths := rng.Perm(len(essayDepths))
	for i := range needles {
		share := rng.Float64()
		if n.haystack == hayEssay {
			share = essayDepths[depths[i]] / 100
		}
		shares = append(shares, share)
	}
	slices.Sort(shares)
	var asked []string
	for _, i := range rng.Perm(n.k)[:n.q] {
		asked = append(asked, keys[i])
		d.answers = append(d.answers, values[keys[i]]...)
	}
	query := asked[0]
	if last := len(asked) - 1; last > 0 {
		query = strings.Join(asked[:last], ", ") + ", and " + asked[last]
	}
	hay := r.essay
	if n.haystack == hayEssay && hay == nil {
		hay = makeHaystack(rng, length)
	}
	lines := func(count int) []string { return slices.Repeat([]string{noise}, count) }
	if n.haystack == hayNeedles { // that are not asked for
		lines = growing(rng, func(more *rand.Rand) string {
			for {
				if key := n.keys.draw(more); values[key] == nil {
					return fmt.Sprintf(rulerNeedle, n.values.name, key, n.values.draw(more))
				}
			}
		})
	}
	d.text = func(units, fillers, variant int) (user, begin string, err error) {
		var context string
		if n.haystack == hayEssay {
			list := sentences(append(hay.takeWords(0, units), filler(fillers, variant)...))
			at := make([]int, len(shares))
			for i, share := range shares {
				at[i] = int(float64(len(list)) * share)
			}
			context = strings.Join(insertAt(list, needles, at), " ")
		} else {
			list := insertAt(lines(units), needles, scattered(shares, units))
			if fillers > 0 {
				list = append(list, noiseFiller(fillers, variant))
			}
			context = strings.Join(list, "\n")
		}
		user, begin = rulerNIAHTemplate, rulerNIAHBegin
		name := n.values.name
		if n.q*n.v == 1 {
			one := strings.NewReplacer("Some", "A", "are all", "is", "are", "is")
			user, begin, name = one.Replace(user), one.Replace(begin), strings.TrimSuffix(name, "s")
		}
		fill := strings.NewReplacer("{values}", name, "{query}", query, "{context}", context)
		return fill.Replace(user), fill.Replace(begin), nil
	}
	return d, nil
}

// growing gives the first n draws, always the same ones; rng seeds their numbers.
func growing[T any](rng *rand.Rand, draw func(more *rand.Rand) T) func(n int) []T {
	more := rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
	var made []T
	return func(n int) []T {
		for len(made) < n {
			made = append(made, draw(more))
		}
		return made[:n]
	}
}
