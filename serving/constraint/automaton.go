package constraint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// An automaton is a deterministic one over bytes; state 0 is the start. Every state can come to the end of a text.
type automaton struct{ states []automatonState }

type automatonState struct {
	accept bool
	edges  []span // in the order of their bytes, without overlaps
}

type span struct {
	lo, hi byte
	to     int32
}

const (
	maxAutomaton = 1 << 13 // states
	maxRounds    = 64      // of reduction, after which the states are left as they are
)

// maxMaking bounds the work on the automata of a schema, about 0.3 s.
const maxMaking = 1 << 24

// regular matches the texts that all of the first expressions match and none of the others, which are regular: the product
// of their automata. It is never where there is no such text. What it takes is added to work.
func regular(all, none []*expr, work *int) (*expr, error) {
	m := newMachine()
	defer func() { *work += m.work }()
	var start []*stacks
	for i, x := range slices.Concat(all, none) {
		if *work += frameWork * x.refs(func(*rule) {}); *work > maxMaking {
			return nil, fmt.Errorf("%w: more than %d units of work for automata", errTooLarge, maxMaking)
		}
		r := &rule{name: "a part of a string", body: x, keep: true}
		err := finish(r, true)
		switch {
		case err == nil:
			start = append(start, m.ruleStart(r))
		case !errors.Is(err, errNoText):
			return nil, err
		case i < len(all):
			return never, nil
		}
	}
	p := product{m: m, all: len(all), index: make(map[string]int32)}
	p.state(start)
	for at := 0; at < len(p.sets); at++ {
		p.follow(at)
		if len(p.sets) > maxAutomaton || m.spent() || *work+m.work > maxMaking {
			return nil, fmt.Errorf("%w: more than %d states or %d units of work for automata", errTooLarge, maxAutomaton, maxMaking)
		}
	}
	a := p.automaton.trimmed()
	if a == nil {
		return never, nil
	}
	return &expr{kind: finite, automaton: a.merged()}, nil
}

// product is of automata that are made while it is, a state for the sets that all of them are in.
type product struct {
	m         *machine
	all       int
	automaton automaton
	sets      [][]*stacks
	index     map[string]int32
}

func (p *product) state(sets []*stacks) int32 {
	var key []byte
	accept := true
	for i, s := range sets {
		key = binary.NativeEndian.AppendUint32(key, uint32(s.id))
		accept = accept && s.ends == (i < p.all)
	}
	id, known := p.index[string(key)]
	if !known {
		id = int32(len(p.sets))
		p.index[string(key)] = id
		p.sets = append(p.sets, sets)
		p.automaton.states = append(p.automaton.states, automatonState{accept: accept})
	}
	return id
}

// follow adds the edges of a state.
func (p *product) follow(at int) {
	var cuts [257]bool // where bytes begin that behave differently
	for _, s := range p.sets[at] {
		for _, f := range s.frames {
			for _, e := range f.state.edges {
				cuts[e.lo], cuts[int(e.hi)+1] = true, true
			}
		}
	}
	var edges []span
	for lo := 0; lo < 256; {
		hi := lo
		for hi < 255 && !cuts[hi+1] {
			hi++
		}
		sets := make([]*stacks, len(p.sets[at]))
		ends := false
		for i, s := range p.sets[at] {
			sets[i] = p.m.afterByte(s, byte(lo))
			ends = ends || i < p.all && sets[i].id == dead
		}
		if !ends {
			edges = append(edges, span{byte(lo), byte(hi), p.state(sets)})
		}
		lo = hi + 1
	}
	p.automaton.states[at].edges = edges
}

// trimmed leaves the states from which a text may end; nil where the start is none.
func (a automaton) trimmed() *automaton {
	before := make([][]int32, len(a.states))
	var todo []int32
	alive := make([]bool, len(a.states))
	for i, s := range a.states {
		for _, e := range s.edges {
			before[e.to] = append(before[e.to], int32(i))
		}
		if alive[i] = s.accept; s.accept {
			todo = append(todo, int32(i))
		}
	}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, i := range before[at] {
			if !alive[i] {
				alive[i] = true
				todo = append(todo, i)
			}
		}
	}
	if !alive[0] {
		return nil
	}
	class := make([]int32, len(a.states))
	n := int32(0)
	for i := range class {
		if class[i] = -1; alive[i] {
			class[i] = n
			n++
		}
	}
	return a.quotient(class, int(n))
}

// quotient makes one state of those in each class, the start in class 0, and leaves out class −1.
func (a automaton) quotient(class []int32, n int) *automaton {
	out := &automaton{make([]automatonState, n)}
	done := make([]bool, n)
	for i, c := range class {
		if c < 0 || done[c] {
			continue
		}
		done[c] = true
		s := automatonState{accept: a.states[i].accept}
		for _, e := range a.states[i].edges {
			to := class[e.to]
			switch last := len(s.edges) - 1; {
			case to < 0:
			case last >= 0 && s.edges[last].to == to && int(s.edges[last].hi)+1 == int(e.lo):
				s.edges[last].hi = e.hi
			default:
				s.edges = append(s.edges, span{e.lo, e.hi, to})
			}
		}
		out.states[c] = s
	}
	return out
}

// merged makes one state of those that behave alike (Moore 1956).
func (a *automaton) merged() *automaton {
	class := make([]int32, len(a.states)) // all in 0
	n := 1
	for range maxRounds {
		next := make(map[string]int32)
		refined := make([]int32, len(class))
		for i, s := range a.states {
			key := binary.NativeEndian.AppendUint32(nil, uint32(class[i]))
			if s.accept {
				key = append(key, 1)
			}
			for j := 0; j < len(s.edges); j++ {
				e := s.edges[j]
				hi := e.hi
				for j+1 < len(s.edges) && class[s.edges[j+1].to] == class[e.to] && int(hi)+1 == int(s.edges[j+1].lo) {
					j++
					hi = s.edges[j].hi
				}
				key = binary.NativeEndian.AppendUint32(append(key, e.lo, hi), uint32(class[e.to]))
			}
			id, known := next[string(key)]
			if !known {
				id = int32(len(next))
				next[string(key)] = id
			}
			refined[i] = id
		}
		class = refined
		if len(next) == n {
			return a.quotient(class, n)
		}
		n = len(next)
	}
	return a
}

// addStates makes the automaton's states a part of a rule, between two others.
func (a *automaton) addStates(r *rule, from, to *state) {
	states := make([]*state, len(a.states))
	for i := range states {
		states[i] = r.newState()
	}
	from.free = append(from.free, states[0])
	for i, s := range a.states {
		for _, e := range s.edges {
			states[i].edges = append(states[i].edges, edge{e.lo, e.hi, states[e.to]})
		}
		if s.accept {
			states[i].free = append(states[i].free, to)
		}
	}
}

// stateCount is its states and edges.
func (a *automaton) stateCount() int {
	n := len(a.states)
	for _, s := range a.states {
		n += len(s.edges)
	}
	return n
}
