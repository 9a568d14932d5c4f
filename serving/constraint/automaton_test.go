package constraint

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRegular holds products of automata against the second implementation, on all short texts.
func TestRegular(t *testing.T) {
	r := rand.New(rand.NewPCG(50, 51))
	var texts []string
	for n := 0; n < 6; n++ {
		for i := range 1 << (2 * n) {
			text := make([]byte, n)
			for j := range text {
				text[j] = "abcd"[i>>(2*j)&3]
			}
			texts = append(texts, string(text))
		}
	}
	in := func(x *expr, text string) bool {
		if !x.productive() {
			return false
		}
		yes, _, known := judge(&Grammar{&rule{body: x}}, text)
		if !known {
			t.Skip("too much to judge")
		}
		return yes
	}
	found, empty := 0, 0
	for range 300 {
		all, none := []*expr{randomExpr(r, nil, 3), rep(byteIn("ad"), 0, 1+r.IntN(5))}, []*expr{randomExpr(r, nil, 3)}
		if r.IntN(2) == 0 {
			none = append(none, rep(byteIn("bb"), 0, unbounded))
		}
		x, err := regular(all, none, new(int))
		if err != nil {
			t.Fatal(err)
		}
		if x.isNever() {
			empty++
		}
		for _, text := range texts {
			want := in(all[0], text) && in(all[1], text) && !in(none[0], text) && (len(none) < 2 || !in(none[1], text))
			if got := !x.isNever() && x.automaton.acceptsText(text); got != want {
				t.Fatalf("%q: admitted %v, want %v", text, got, want)
			}
			if want {
				found++
			}
		}
	}
	if found < 1000 || empty > 200 {
		t.Errorf("%d texts were in a product, %d products were empty", found, empty)
	}
}

// acceptsText tells whether the automaton reads a text to its end.
func (a *automaton) acceptsText(text string) bool {
	at := int32(0)
	for i := range len(text) {
		j := slices.IndexFunc(a.states[at].edges, func(e span) bool { return e.lo <= text[i] && text[i] <= e.hi })
		if j < 0 {
			return false
		}
		at = a.states[at].edges[j].to
	}
	return a.states[at].accept
}
