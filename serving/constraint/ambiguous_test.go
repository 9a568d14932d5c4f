package constraint

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// wordVocabulary is like a model's: n tokens of up to 9 letters and blanks, many the beginnings of others.
func wordVocabulary(n int) *Vocabulary {
	r := rand.New(rand.NewPCG(30, 31))
	tokens := make([][]byte, 0, n)
	for b := range 256 {
		tokens = append(tokens, []byte{byte(b)})
	}
	for len(tokens) < n {
		t := append([]byte(nil), tokens[r.IntN(len(tokens))]...)
		if len(t) < 9 {
			tokens = append(tokens, append(t, "etaoinshrdlucmfwypvbgkjqxz "[min(r.IntN(27), r.IntN(27))]))
		}
	}
	return NewVocabulary(tokens, []int32{0})
}

// TestAmbiguousGrammars: where a text has more readings than could be listed, a token takes bounded work. Either
// nothing that the grammar admits is lost, or the answer ends with an error.
func TestAmbiguousGrammars(t *testing.T) {
	v := wordVocabulary(50000)
	for _, c := range []struct {
		name, grammar string
		tokens        int // of an answer at the least
	}{
		{"lists of lists", "root ::= e\ne ::= [a-z ] | [a-z ] e | [a-z ] e e | [a-z ] e e e", 120},
		{"nested optional lists", "root ::= l\nl ::= \"(\"? ([a-z ] l?)? (\",\"? [a-z ] l?)* \")\"?", 60},
		{"operators without precedence", "root ::= t | t o root\nt ::= [a-z]+ | t2 [ ] t2\nt2 ::= [a-z]+ t2? t2?\no ::= [ a-z]", 120},
		{"counted lists of lists", "root ::= e\ne ::= [a-z ] (e | e e){0,100}", 5},
		{"any of many", "root ::= (a | b | c)+\na ::= [a-m ]+ b?\nb ::= [g-z ]+ c?\nc ::= [a-z ]+ a?", 120},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(32, 33))
			m := NewMatcher(mustGBNF(t, c.grammar), v)
			worst, most, read := time.Duration(0), 0, 0
			for ; read < 120; read++ {
				begin := time.Now()
				err := m.Mask(make([]float32, len(v.tokens)))
				worst, most = max(worst, time.Since(begin)), max(most, m.m.work)
				if errors.Is(err, ErrTooAmbiguous) {
					break
				}
				ids := slices.DeleteFunc(allowedIDs(m, len(v.tokens)), func(id int32) bool { return id == 0 })
				if len(ids) < 20 {
					t.Fatalf("%d tokens may follow, want most of letters", len(ids))
				}
				if err := m.Accept(ids[r.IntN(len(ids))]); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%d tokens, a mask takes up to %v and %d units of work", read, worst, most)
			if read < c.tokens {
				t.Errorf("the answer ends after %d tokens, want at least %d", read, c.tokens)
			}
			if most > maxWork+maxWork/4 {
				t.Errorf("%d units of work in a mask, want up to about %d", most, maxWork)
			}
			if worst > 2*time.Second {
				t.Errorf("a mask took %v", worst)
			}
		})
	}
}
