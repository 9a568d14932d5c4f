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

// The texts are those of RULER, scripts/data/synthetic/constants.py.
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
	return rulerTask{name: name, maxNew: 128, metric: rulerAll, essay: n.haystack == hayEssay,
		make: func(r *ruler, rng *rand.Rand, length, _ int) (rulerDraft, error) { return n.draft(r, rng, length), nil }}
}

// niahRULER is a prompt. Its units are words of running text, or lines.
type niahRULER struct {
	rulerNeedles
	needles []string  // in the order in which they stand
	shares  []float64 // of the haystack before each
	query   string
	want    []string
	hay     *haystack
	others  func(n int) []string // needles that are not asked for
}

func (n rulerNeedles) draft(r *ruler, rng *rand.Rand, length int) *niahRULER {
	d := &niahRULER{rulerNeedles: n}
	var keys []string
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
			d.needles = append(d.needles, fmt.Sprintf(rulerNeedle, n.values.name, key, value))
		}
	}
	rng.Shuffle(len(d.needles), func(i, j int) { d.needles[i], d.needles[j] = d.needles[j], d.needles[i] })
	depths := rng.Perm(len(essayDepths))
	for i := range d.needles {
		share := rng.Float64()
		if n.haystack == hayEssay {
			share = essayDepths[depths[i]] / 100
		}
		d.shares = append(d.shares, share)
	}
	slices.Sort(d.shares)
	var asked []string
	for _, i := range rng.Perm(n.k)[:n.q] {
		asked = append(asked, keys[i])
		d.want = append(d.want, values[keys[i]]...)
	}
	d.query = asked[0]
	if last := len(asked) - 1; last > 0 {
		d.query = strings.Join(asked[:last], ", ") + ", and " + asked[last]
	}
	switch n.haystack {
	case hayEssay:
		if d.hay = r.essay; d.hay == nil {
			d.hay = makeHaystack(rng, length)
		}
	case hayNeedles:
		var made []string
		more := rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
		d.others = func(count int) []string {
			for len(made) < count {
				if key := n.keys.draw(more); values[key] == nil {
					made = append(made, fmt.Sprintf(rulerNeedle, n.values.name, key, n.values.draw(more)))
				}
			}
			return made[:count]
		}
	}
	return d
}

func (d *niahRULER) answers() []string { return d.want }

func (d *niahRULER) variants() int { return len(fillerEnds) }

func (d *niahRULER) text(units, fillers, variant int) (user, begin string, err error) {
	var context string
	if d.haystack == hayEssay {
		list := sentences(append(d.hay.take(0, units), filler(fillers, variant)...))
		at := make([]int, len(d.shares))
		for i, share := range d.shares {
			at[i] = int(float64(len(list)) * share)
		}
		context = strings.Join(insertAt(list, d.needles, at), " ")
	} else {
		var lines []string
		if d.haystack == hayNoise {
			lines = slices.Repeat([]string{noise}, units)
		} else {
			lines = slices.Clone(d.others(units))
		}
		lines = insertAt(lines, d.needles, scattered(d.shares, units))
		if fillers > 0 {
			lines = append(lines, noiseFiller(fillers, variant))
		}
		context = strings.Join(lines, "\n")
	}
	user, begin = rulerNIAHTemplate, rulerNIAHBegin
	name := d.values.name
	if d.q*d.v == 1 {
		one := strings.NewReplacer("Some", "A", "are all", "is", "are", "is")
		user, begin, name = one.Replace(user), one.Replace(begin), strings.TrimSuffix(name, "s")
	}
	fill := strings.NewReplacer("{values}", name, "{query}", d.query, "{context}", context)
	return fill.Replace(user), fill.Replace(begin), nil
}
