package constraint

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// randomExpr is an expression over the bytes a, b and c that names the rules.
func randomExpr(r *rand.Rand, rules []*rule, depth int) *expr {
	sub := func() *expr { return randomExpr(r, rules, depth-1) }
	kind := r.IntN(9)
	if kind == 8 && depth > 1 { // of a regular expression
		x, y := randomExpr(r, nil, 2), randomExpr(r, nil, 2)
		if product, err := regular([]*expr{x, rep(byteIn("ac"), 0, unbounded)}, []*expr{y}, new(int)); err == nil {
			return product
		}
	}
	kind = min(kind, 7)
	if depth == 0 {
		kind = r.IntN(3)
	}
	switch kind {
	case 0:
		return lit([]string{"", "a", "b", "ab", "ca"}[r.IntN(5)])
	case 1:
		return byteIn([]string{"ab", "cc", "ac"}[r.IntN(3)])
	case 2:
		if rules == nil {
			return lit("bc")
		}
		return ref(rules[r.IntN(len(rules))])
	case 3, 4:
		return seq(sub(), sub(), sub())
	case 5:
		return alt(sub(), sub(), sub())
	case 6:
		lo := r.IntN(3)
		return rep(sub(), lo, lo+r.IntN(3))
	}
	// Costly enough to be counted, with and without an upper bound.
	long := lit(strings.Repeat("c", 30))
	lo := r.IntN(4)
	hi := lo + r.IntN(3)
	if r.IntN(2) == 0 {
		hi = unbounded
	}
	return rep(alt(sub(), long), lo, hi)
}

// randomGrammar may be refused for left recursion or since it has no text.
func randomGrammar(r *rand.Rand) (*Grammar, error) {
	rules := make([]*rule, 1+r.IntN(4))
	for i := range rules {
		rules[i] = &rule{name: fmt.Sprint("r", i), keep: r.IntN(2) == 0}
	}
	for _, x := range rules {
		x.body = randomExpr(r, rules, 3)
	}
	return parsed(rules[0], "grammar")
}

// TestAgainstNaive holds the automaton against the second implementation: for every
// beginning of random texts, whether it is complete and whether it may go on.
func TestAgainstNaive(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	made, complete, refused, left := 0, 0, 0, 0
	for made < 3000 {
		g, err := randomGrammar(r)
		if err != nil {
			if strings.Contains(err.Error(), "left-recursive") {
				left++
			}
			continue
		}
		made++
		for range 6 {
			m := NewMatcher(g, byteVocabulary)
			text := ""
			for len(text) < 10 {
				in, viable, known := judge(g, text)
				if !known {
					break
				}
				s := m.set
				if s.ends != in || (len(s.frames) > 0) != viable {
					t.Fatalf("%q in %s: ends %v, goes on %v; want %v, %v", text, show(g), s.ends, len(s.frames) > 0, in, viable)
				}
				if in {
					complete++
				}
				text += string("abcc"[r.IntN(4)])
				if err := m.Accept(int32(text[len(text)-1])); err != nil {
					if in, viable, known := judge(g, text); known && (in || viable) {
						t.Fatalf("%q in %s is refused (%v)", text, show(g), err)
					}
					refused++
					break
				}
			}
		}
	}
	if complete < 5000 || refused < 2000 || left < 500 {
		t.Errorf("%d complete texts, %d refused, %d left-recursive grammars: the random grammars are too plain", complete, refused, left)
	}
}

// show writes the rules of a grammar.
func show(g *Grammar) string {
	var out strings.Builder
	seen := make(map[*rule]bool)
	var write func(x *expr) string
	var visit func(r *rule)
	write = func(x *expr) string {
		parts := make([]string, len(x.list))
		for i, y := range x.list {
			parts[i] = write(y)
		}
		switch x.kind {
		case literal:
			return fmt.Sprintf("%q", x.text)
		case class:
			s := "["
			x.class.ranges(func(lo, hi byte) { s += fmt.Sprintf("%c-%c", lo, hi) })
			return s + "]"
		case alternation:
			return "(" + strings.Join(parts, " | ") + ")"
		case repetition:
			return fmt.Sprintf("(%s){%d,%d}", parts[0], x.min, x.max)
		case reference:
			return x.rule.name
		case finite:
			return fmt.Sprint(x.automaton.states)
		}
		return "(" + strings.Join(parts, " ") + ")"
	}
	visit = func(r *rule) {
		if seen[r] {
			return
		}
		seen[r] = true
		fmt.Fprintf(&out, "%s ::= %s; ", r.name, write(r.body))
		r.body.refs(visit)
	}
	visit(g.root)
	return out.String()
}

// TestMaskIsAccept holds the mask of random states against Accept of every token.
func TestMaskIsAccept(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var tokens [][]byte
	for range 300 {
		token := make([]byte, r.IntN(5))
		for i := range token {
			token[i] = "abccc"[r.IntN(5)]
		}
		tokens = append(tokens, token)
	}
	tokens = append(tokens, []byte(strings.Repeat("c", 30)), []byte(strings.Repeat("c", 37)), nil)
	v := NewVocabulary(tokens, []int32{5, 302})
	grammars := []*Grammar{Object(), mustGBNF(t, `root ::= [abc]{17,40} | "c"{20,} "ab"`), mustGBNF(t, `root ::= ("a" | "ab" | "bc" | "c"){3,100}`)}
	most := 400
	if testing.Short() {
		most = 130
	}
	for len(grammars) < most {
		if g, err := randomGrammar(r); err == nil {
			grammars = append(grammars, g)
		}
	}
	for _, g := range grammars {
		checkMask(t, r, g, v, 12)
	}
}

// checkMask draws an answer and compares every mask on the way.
func checkMask(t *testing.T, r *rand.Rand, g *Grammar, v *Vocabulary, length int) {
	t.Helper()
	m := NewMatcher(g, v)
	var text []byte
	for range length {
		if len(m.set.frames) > 50 || m.prepare() != nil { // every token there takes long
			return
		}
		ids := allowedIDs(m, len(v.tokens)+3)
		var want []int32
		for id := range len(v.tokens) + 3 {
			one := *m
			if one.Accept(int32(id)) == nil {
				want = append(want, int32(id))
			}
		}
		if !slices.Equal(ids, want) {
			t.Fatalf("after %q in %s: the mask allows %v, Accept %v", text, show(g), ids, want)
		}
		if len(ids) == 0 {
			return
		}
		id := ids[r.IntN(len(ids))]
		if err := m.Accept(id); err != nil {
			t.Fatal(err)
		}
		if int(id) < len(v.tokens) {
			text = append(text, v.tokens[id]...)
		}
	}
}

func TestCombinators(t *testing.T) {
	call := Sequence(Literal(`<call>{"name": `), Choice(`"f"`, `"g"`), Literal(`, "arguments": `), Object(), Literal(`}</call>`))
	tools := Any(Repeat(call, 1, 2), Literal("no"))
	const f = `<call>{"name": "f", "arguments": {"x": 1}}</call>`
	for text, want := range map[string]bool{
		f: true, f + f: true, f + f + f: false, "no": true, "": false, f + "no": false,
		strings.Replace(f, `"f"`, `"h"`, 1): false, strings.Replace(f, `{"x": 1}`, `[]`, 1): false,
	} {
		if got := admits(tools, text); got != want {
			t.Errorf("%s: admitted %v, want %v", text, got, want)
		}
	}
	many := Repeat(Literal("ab"), 100, 1<<20)
	if admits(many, strings.Repeat("ab", 99)) || !admits(many, strings.Repeat("ab", 100)) || !admits(many, strings.Repeat("ab", 5000)) {
		t.Error("a counted repetition does not count")
	}
	if !admits(Repeat(Literal("a"), 2, -1), "aaaa") || admits(Repeat(Literal("a"), 0, 0), "a") || !admits(Sequence(), "") {
		t.Error("empty and unbounded repetitions")
	}
}

// TestMatcher is the life of an answer: end tokens, tokens without text, an error that
// changes nothing.
func TestMatcher(t *testing.T) {
	v := NewVocabulary([][]byte{[]byte("yes"), []byte("y"), []byte("es"), nil, {}, []byte("</s>")}, []int32{5, -1, 7})
	m := NewMatcher(Choice("yes", "yeses"), v)
	steps := []struct {
		id      int32
		allowed []int32
		ended   bool
	}{{1, []int32{0, 1}, false}, {2, []int32{2}, false}, {2, []int32{2, 5, 7}, false}, {7, []int32{5, 7}, true}, {5, []int32{5, 7}, true}}
	for i, s := range steps {
		if got := allowedIDs(m, 9); !slices.Equal(got, s.allowed) || m.Ended() != s.ended {
			t.Fatalf("step %d: allowed %v, ended %v; want %v, %v", i, got, m.Ended(), s.allowed, s.ended)
		}
		for id := int32(-1); id < 9; id++ {
			if !slices.Contains(s.allowed, id) && m.Accept(id) == nil {
				t.Fatalf("step %d: token %d is accepted", i, id)
			}
		}
		if err := m.Accept(s.id); err != nil {
			t.Fatal(err)
		}
	}
}

// TestConcurrent: answers of one grammar and vocabulary at the same time have the masks that
// they have alone.
func TestConcurrent(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 18))
	v := pieces(r)
	answer := func(seed uint64, v *Vocabulary) string {
		return string(sample(t, rand.New(rand.NewPCG(seed, 19)), Object(), v, 30))
	}
	got := make([]string, 8)
	var wait sync.WaitGroup
	for i := range got {
		wait.Go(func() { got[i] = answer(uint64(i), v) })
	}
	wait.Wait()
	for i := range got {
		if want := answer(uint64(i), NewVocabulary(v.tokens, v.end)); got[i] != want {
			t.Errorf("answer %d is %q, alone %q", i, got[i], want)
		}
	}
}
