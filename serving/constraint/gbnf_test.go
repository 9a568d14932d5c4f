package constraint

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// jsonGBNF is grammars/json.gbnf of llama.cpp.
const jsonGBNF = `root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
`

func TestGBNF(t *testing.T) {
	for _, c := range []struct {
		name, grammar string
		yes, no       []string
	}{
		{"llama.cpp's JSON", jsonGBNF, []string{`{}`, `{"a": [1, 2.5e-3, "x\u00e9", {"b": null}]}`, "{\n  \"a\":true}\n"}, []string{`[]`, `{"a"}`, `{"a":1,}`, "{\"\x7f\":1}"}},
		{"literals", `root ::= "a\"\\\n\t\x41\u00e9\U0001F642" "é"`, []string{"a\"\\\n\tAé🙂é"}, []string{"a"}},
		{"classes", `root ::= [a-cx-]+ [^a-y] [\]\[\x41-\x43é-ü]`, []string{"a-xz]", "bzA", "c🙂ó"}, []string{"az", "axy]", "azD"}},
		{"any", `root ::= . .`, []string{"é🙂", "\n\n"}, []string{"a", "abc", "\xff\xff"}},
		{"repetitions", `root ::= "a"{2} "b"{1,} "c"{,2} "d"{1,3} "e"? ("f" "g")*`, []string{"aabd", "aabbbccdddefgfg"}, []string{"abd", "aad", "aabcccd", "aabdddd", "aabdfgf"}},
		{"large repetitions", `root ::= "a"{3,1000000} "b"{1000}`, []string{"aaaa" + strings.Repeat("b", 1000)}, []string{"aa" + strings.Repeat("b", 1000), "aaa" + strings.Repeat("b", 999)}},
		{"alternatives on lines", "root ::= \"a\" |\n  \"b\" | # why\n\n  x-1\nx-1 ::= (\n\"c\"\n| \"d\" )\n", []string{"a", "b", "c", "d"}, []string{"ab", ""}},
		{"recursive", `root ::= "(" root ")" root | ""`, []string{"", "()", "(())()"}, []string{"(", "())"}},
		{"right recursive", `root ::= "a" root | "b"`, []string{strings.Repeat("a", 5000) + "b"}, []string{"a"}},
		{"empty loops", `root ::= (("a"? | "")* "")+ "b"`, []string{"b", "aaab"}, []string{"a"}},
		{"a rule without an end beside others", "root ::= \"a\" | \"b\" never\nnever ::= \"x\" never", []string{"a"}, []string{"b", "bx"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := mustGBNF(t, c.grammar)
			for _, text := range c.yes {
				if n, ends := read(g, text); n < len(text) || !ends {
					t.Errorf("%.50q: read %d bytes, ends %v", text, n, ends)
				}
			}
			for _, text := range c.no {
				if admits(g, text) {
					t.Errorf("%.50q is admitted", text)
				}
			}
			r := rand.New(rand.NewPCG(12, 13))
			checkMask(t, r, g, pieces(r, c.yes...), 15)
		})
	}
}

func TestRefusedGBNF(t *testing.T) {
	for _, c := range []struct{ name, grammar, want string }{
		{"empty", ``, "1:1: rule root is not defined"},
		{"no root", `a ::= "b"`, "rule root is not defined"},
		{"not defined", "root ::= \"é\" a\n b ::= c", "1:14: rule a is not defined"},
		{"twice", "root ::= \"a\"\nroot ::= \"b\"", "2:1: rule root is defined twice"},
		{"no name", "root ::= \"a\"\n= 7", "2:1: found '=', want the name of a rule"},
		{"no definition", "root : \"a\"", "1:6: found ':', want ::="},
		{"open literal", "root ::= \"a", "1:12: end of the grammar"},
		{"open class", "root ::= [a", "1:12: end of the grammar"},
		{"open parenthesis", "root ::= (\"a\"\n", "2:1: end of the grammar, want )"},
		{"closing parenthesis", "root ::= \"a\" )", "1:14: found ')', want the end of the rule root"},
		{"escape", `root ::= "\q"`, `1:12: unknown escape \q`},
		{"hex", `root ::= "\x4"`, `\x4" is no character`},
		{"surrogate", `root ::= "\uD800"`, `is no character`},
		{"range", `root ::= [z-a]`, "is empty"},
		{"repetition", `root ::= "a"{3,2}`, "is empty"},
		{"huge repetition", `root ::= "a"{99999999999999999999}`, "repetition 99999999999999999999"},
		{"large repetition", `root ::= "a"{1,99999999}`, "repetition 99999999"},
		{"no number", `root ::= "a"{}`, "want a number"},
		{"open braces", `root ::= "a"{1`, "want }"},
		{"many repetitions", `root ::= "a"` + strings.Repeat("+", 1000), "repetitions of one item"},
		{"nested parentheses", `root ::= ` + strings.Repeat("(", 1000), "nested parentheses"},
		{"tokens", `root ::= <think>`, "angle brackets"},
		{"not UTF-8", "root ::= \"\xff\"", "not UTF-8"},
		{"left recursion", `root ::= root "a" | "b"`, "rule root is left-recursive"},
		{"left recursion through others", "root ::= \"x\" a\na ::= b? c\nb ::= \"y\"\nc ::= (a | \"z\")+", "(c → a → c)"},
		{"left recursion that is ambiguous", "root ::= s\ns ::= s s | \"a\"", "rule s is left-recursive"},
		{"left recursion in a repetition", `root ::= (root | "a"){3,500}`, "left-recursive"},
		{"no end", `root ::= "a" root`, "admits no text"},
		{"too long", strings.Repeat("#", 1<<19), "bytes"},
		{"too many characters", `root ::= ` + strings.Repeat(".", 100000), "too large"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := GBNF(c.grammar)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// TestHostileGrammars: masks of grammars that are as ambiguous as can be take bounded time and
// memory.
func TestHostileGrammars(t *testing.T) {
	r := rand.New(rand.NewPCG(14, 15))
	v := pieces(r, "abababbbaaa", strings.Repeat("a", 100))
	for _, c := range []struct{ name, grammar string }{
		{"exponential", "root ::= . root x | . root y | .\nx ::= \"x\"\ny ::= \"y\""},
		{"palindromes", `root ::= "a" root "a" | "b" root "b" | . root . | ""`},
		{"nested counters", `root ::= ((("a" | "aa"){1,1000} | "b"){1,1000} | "ab"){1,1000}`},
		{"doubling rules", "root ::= r1 r1\n" + func() string {
			s := ""
			for i := 1; i < 60; i++ {
				s += fmt.Sprintf("r%d ::= r%d r%d\n", i, i+1, i+1)
			}
			return s + "r60 ::= \"a\"?\n"
		}()},
		{"nested plus", `root ::= ` + strings.Repeat("(", 150) + `"a"` + strings.Repeat(`+ "b"?)`, 150)},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := mustGBNF(t, c.grammar)
			m := NewMatcher(g, v)
			begin := time.Now()
			for range 25 {
				ids := allowedIDs(m, len(v.tokens)-1)
				if len(ids) == 0 {
					break
				}
				if err := m.Accept(ids[r.IntN(len(ids))]); err != nil {
					t.Fatal(err)
				}
				if n := m.m.work; n > maxWork+maxWork/4 {
					t.Fatalf("%d units of work in one mask, want about %d", n, maxWork)
				}
			}
			if d := time.Since(begin); d > time.Minute {
				t.Errorf("25 tokens took %v", d)
			}
		})
	}
}

// TestDepth: a nesting that is deeper than the bound is not allowed, masks say so of tokens that
// go several levels down, and the answer can still end.
func TestDepth(t *testing.T) {
	v := NewVocabulary([][]byte{[]byte(`{"":`), []byte("["), []byte("[[[["), []byte("[[[[[]"), []byte("]"), []byte("]]]"), []byte("}")}, nil)
	m := NewMatcher(Object(), v)
	if err := m.Accept(0); err != nil {
		t.Fatal(err)
	}
	depth := 0
	for depth < 3*maxDepth {
		var want []int32
		for id := range int32(len(v.tokens)) {
			one := *m
			if one.Accept(id) == nil {
				want = append(want, id)
			}
		}
		ids := allowedIDs(m, len(v.tokens))
		if !slices.Equal(ids, want) {
			t.Fatalf("%d deep: the mask allows %v, Accept %v", depth, ids, want)
		}
		id := int32(1)
		if slices.Contains(ids, 2) {
			id = 2
		}
		if !slices.Contains(ids, id) {
			break
		}
		if err := m.Accept(id); err != nil {
			t.Fatal(err)
		}
		depth += len(v.tokens[id])
	}
	if depth < maxDepth/4 || depth > maxDepth {
		t.Errorf("arrays are %d deep, want up to a bound", depth)
	}
	for range depth {
		if err := m.Accept(4); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Accept(6); err != nil || !m.Ended() {
		t.Errorf("the answer does not end: %v", err)
	}
}

func FuzzGBNF(f *testing.F) {
	for _, s := range []string{jsonGBNF, `root ::= "a"{2,} ([b-d] | x)* .? x` + "\nx ::= \"é\" | \"(\" x \")\"", `root ::= "\x41\u00e9" [^a-z]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		g, err := GBNF(text)
		if err != nil {
			return
		}
		m := NewMatcher(g, byteVocabulary)
		var answer strings.Builder
		r := rand.New(rand.NewPCG(uint64(len(text)), 16))
		for range 30 {
			ids := allowedIDs(m, 257)
			if len(ids) == 0 {
				t.Fatalf("nothing may follow %q", answer.String())
			}
			id := ids[r.IntN(len(ids))]
			if err := m.Accept(id); err != nil {
				t.Fatal(err)
			}
			if id == 256 {
				if in, _, known := judge(g, answer.String()); known && !in {
					t.Fatalf("%q is not in the grammar", answer.String())
				}
				return
			}
			answer.WriteByte(byte(id))
		}
	})
}
