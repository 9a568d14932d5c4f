package jieba

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"strings"
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

// never is the logarithm of the probability of uncounted events (MIN_FLOAT in
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

// readModel fills the model from the three Python files of finalseg.
func (m *model) readModel(dir string) error {
	for i := range m.start {
		m.start[i] = never
		for j := range m.trans[i] {
			m.trans[i][j] = never
		}
	}
	var start map[string]float64
	var trans, emit map[string]map[string]float64
	return errors.Join(
		readDict(filepath.Join(dir, "prob_start.py"), 1, &start, func() error {
			return eachState(start, func(i int, v float64) error {
				m.start[i] = v
				return logarithm(v)
			})
		}),
		readDict(filepath.Join(dir, "prob_trans.py"), 2, &trans, func() error {
			return eachState(trans, func(i int, row map[string]float64) error {
				return eachState(row, func(j int, v float64) error {
					m.trans[i][j] = v
					return logarithm(v)
				})
			})
		}),
		readDict(filepath.Join(dir, "prob_emit.py"), 2, &emit, func() error {
			return eachState(emit, func(i int, row map[string]float64) error {
				m.emit[i] = row
				for _, v := range row {
					if err := logarithm(v); err != nil {
						return err
					}
				}
				return nil
			})
		}),
	)
}

// eachState calls f with the states and values of a dictionary, at least one.
func eachState[V any](dict map[string]V, f func(state int, v V) error) error {
	if len(dict) == 0 {
		return errors.New("no entries")
	}
	for key, v := range dict {
		i := strings.Index(states, key)
		if len(key) != 1 || i < 0 {
			return fmt.Errorf("key %q, want a state of %s", key, states)
		}
		if err := f(i, v); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

func logarithm(v float64) error {
	if v > 0 {
		return fmt.Errorf("got %v, want the logarithm of a probability", v)
	}
	return nil
}

// number is what the model leaves whole between Chinese characters (re_skip in
// jieba/finalseg).
var number = regexp.MustCompile(`[a-zA-Z0-9]+(?:\.[0-9]+)?%?`)

// cutRun appends the words of a run of characters that the dictionary knows no word for.
func (m *model) cutRun(words []string, run string) []string {
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
