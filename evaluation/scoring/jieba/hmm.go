package jieba

import (
	"fmt"
	"math"
	"path/filepath"
	"regexp"

	"glimpse/internal/regularfile"
)

// States of a character within a word, in the order of their letters, which
// decides between equal probabilities: begin, end, middle, single.
const states = "BEMS"

const (
	begin = iota
	end
	middle
	single
)

// never is the logarithm of the probability of what was not counted (MIN_FLOAT in
// jieba/finalseg).
const never = -3.14e100

// before lists the states that may precede a state, in the order of their letters.
var before = [len(states)][2]int{
	begin:  {end, single},
	end:    {begin, middle},
	middle: {begin, middle},
	single: {end, single},
}

// model is a hidden Markov model over characters; all values are logarithms of
// probabilities.
type model struct {
	start [len(states)]float64
	trans [len(states)][len(states)]float64 // [from][to]
	emit  [len(states)]map[string]float64   // by character
}

// read fills the model from the three Python files of finalseg.
func (m *model) read(dir string) error {
	for i := range m.start {
		m.start[i] = never
		m.emit[i] = map[string]float64{}
		for j := range m.trans[i] {
			m.trans[i][j] = never
		}
	}
	files := []struct {
		name string
		keys int
		set  func(keys []string, v float64) bool
	}{
		{"prob_start.py", 1, func(keys []string, v float64) bool {
			i, ok := state(keys[0])
			m.start[i] = v
			return ok
		}},
		{"prob_trans.py", 2, func(keys []string, v float64) bool {
			i, ok := state(keys[0])
			j, ok2 := state(keys[1])
			m.trans[i][j] = v
			return ok && ok2
		}},
		{"prob_emit.py", 2, func(keys []string, v float64) bool {
			i, ok := state(keys[0])
			m.emit[i][keys[1]] = v
			return ok
		}},
	}
	for _, f := range files {
		path := filepath.Join(dir, f.name)
		data, err := regularfile.Read(path, maxFile)
		if err != nil {
			return fmt.Errorf("jieba character model: %w", err)
		}
		n := 0
		err = parseDict(data, func(keys []string, v float64) error {
			n++
			if len(keys) != f.keys || math.IsNaN(v) || v > 0 || !f.set(keys, v) {
				return fmt.Errorf("entry %q of value %v, want a logarithm of a probability for %d keys that begin with a state of %s",
					keys, v, f.keys, states)
			}
			return nil
		})
		if err == nil && n == 0 {
			err = fmt.Errorf("no entries")
		}
		if err != nil {
			return fmt.Errorf("jieba character model: %s: %w", path, err)
		}
	}
	return nil
}

func state(key string) (int, bool) {
	for i := range states {
		if key == states[i:i+1] {
			return i, true
		}
	}
	return 0, false
}

// number is what the model leaves whole between Chinese characters (re_skip in
// jieba/finalseg).
var number = regexp.MustCompile(`[a-zA-Z0-9]+(?:\.[0-9]+)?%?`)

// cut appends the words of a run of characters that the dictionary knows no word for.
func (m *model) cut(words []string, run string) []string {
	for len(run) > 0 {
		if n := span(run, isHan); n > 0 {
			words = m.viterbi(words, run[:n])
			run = run[n:]
			continue
		}
		n := span(run, func(r rune) bool { return !isHan(r) })
		rest := run[:n]
		run = run[n:]
		from := 0
		for _, loc := range number.FindAllStringIndex(rest, -1) {
			if loc[0] > from {
				words = append(words, rest[from:loc[0]])
			}
			words = append(words, rest[loc[0]:loc[1]])
			from = loc[1]
		}
		if from < len(rest) {
			words = append(words, rest[from:])
		}
	}
	return words
}

// viterbi appends the words of the most probable sequence of states. Of equal
// probabilities the state with the later letter wins.
func (m *model) viterbi(words []string, text string) []string {
	at := offsets(text)
	n := len(at) - 1
	from := make([][len(states)]int, n) // the state before, on the best path to each state
	var p, q [len(states)]float64
	for t := range n {
		char := text[at[t]:at[t+1]]
		for y := range p {
			emit, ok := m.emit[y][char]
			if !ok {
				emit = never
			}
			if t == 0 {
				q[y] = m.start[y] + emit
				continue
			}
			q[y] = math.Inf(-1)
			for _, y0 := range before[y] {
				if v := p[y0] + m.trans[y0][y] + emit; v >= q[y] {
					q[y], from[t][y] = v, y0
				}
			}
		}
		p = q
	}
	path := make([]int, n)
	path[n-1] = single
	if p[end] > p[single] {
		path[n-1] = end
	}
	for t := n - 1; t > 0; t-- {
		path[t-1] = from[t][path[t]]
	}
	first := 0
	for t, y := range path {
		if y == end || y == single {
			words = append(words, text[at[first]:at[t+1]])
			first = t + 1
		}
	}
	return words
}
