package constraint

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

var regexCases = []string{`a`, ``, `[a-c]+`, `^ab*$`, `(a|ab)(c|bcd)*`, `(?i)aB`, `a{2,5}b{0,3}`, `(ab|a){2,300}`, `[^a]`, `.`, `(?s).`, `\d{3}-\w+`,
	`é|[α-ω]+|🙂`, `[^\x00-\x{10FFFE}]`, `\pL+`, `(?:a|)+b`, `(a*)*b`, `((a{0,10}b){0,10}c){0,9}`, `(?i)k`, `^(?:a|b$|c)$`, `[\x{d700}-\x{e100}]`, `(^a|b)c`, `^^a$$`, `a^`, `$a`, `a(^b|c)`, `(a|b$)c`, `a(^)b`, `(^|x)ab($|y)`}

// TestRegex holds patterns against package regexp, on texts that are like them.
func TestRegex(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 11))
	matched, checked := 0, 0
	for _, pattern := range regexCases {
		judge := regexp.MustCompile(`^(?:` + pattern + `)$`)
		g, err := Regex(pattern)
		if err != nil {
			if !strings.ContainsAny(pattern, "^$") {
				t.Errorf("%s: %v", pattern, err)
			}
			continue
		}
		v := pieces(r, pattern, "aabbcd", "kKK", "αω", "123-x_9")
		for range 300 {
			var text string
			if r.IntN(2) == 0 {
				m := NewMatcher(g, v)
				for range r.IntN(12) {
					ids := allowedIDs(m, len(v.tokens)-1)
					if len(ids) == 0 {
						break
					}
					id := ids[r.IntN(len(ids))]
					if err := m.Accept(id); err != nil {
						t.Fatal(err)
					}
					text += string(v.tokens[id])
				}
			} else {
				for range r.IntN(6) {
					text += string([]rune("aabcdkKK-1é🙂ω\n")[r.IntN(14)])
				}
			}
			want := judge.MatchString(text) && strings.ToValidUTF8(text, "") == text
			if got := admits(g, text); got != want {
				t.Errorf("%s, %q: admitted %v, want %v", pattern, text, got, want)
			}
			checked++
			if want {
				matched++
			}
		}
	}
	if matched < checked/10 {
		t.Errorf("%d of %d texts matched", matched, checked)
	}
	for pattern, want := range map[string]string{`a\bc`: `\b`, `(`: "missing", `a{1001}`: "repeat", `(a{1000}){1000}`: "repeat", `(?m)^a`: "not supported",
		strings.Repeat("a", 1<<15): "bytes", `[^\x00-\x{10FFFF}]`: "admits no text"} {
		if _, err := Regex(pattern); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20s: error %v, want one with %q", pattern, err, want)
		}
	}
}

func FuzzRegex(f *testing.F) {
	for _, pattern := range regexCases {
		f.Add(pattern, "abc")
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		g, err := Regex(pattern)
		if err != nil || len(text) > 100 {
			return
		}
		judge, err := regexp.Compile(`^(?:` + pattern + `)$`)
		if err != nil {
			return
		}
		if strings.ToValidUTF8(text, "") == text && admits(g, text) != judge.MatchString(text) {
			t.Errorf("%s, %q: admitted %v", pattern, text, admits(g, text))
		}
	})
}
