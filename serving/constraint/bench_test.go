package constraint

import (
	"strings"
	"testing"
)

const benchSchema = `{"type": "object", "properties": {
	"name": {"type": "string"}, "code": {"type": "string", "maxLength": 500}, "short": {"type": "string", "maxLength": 20},
	"age": {"type": "integer", "minimum": 0, "maximum": 150}, "price": {"type": "number"},
	"tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}},
	"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "additionalProperties": false}`

func BenchmarkMask(b *testing.B) {
	v, _ := realVocabulary(b, "llama3")
	g := mustSchema(b, benchSchema, true)
	logits := make([]float32, len(v.tokens))
	for _, c := range []struct{ name, text string }{
		{"string", `{"name": "The quick`},
		{"string/maxLength=500", `{"code": "The quick`},
		{"string/maxLength=20", `{"short": "The quick`},
		{"value=any/string", `{"x": "The quick`},
		{"property", `{"name": "x",`},
		{"property/begun", `{"name": "x", "pri`},
		{"number", `{"name": "x", "price": 12`},
		{"enum", `{"tags": ["r`},
		{"nested", `{"next": {"next": {"next": {"name": "x`},
	} {
		grammar := g
		if c.name == "value=any/string" {
			grammar = Object()
		}
		at := func() *Matcher {
			m := NewMatcher(grammar, v)
			for i := range len(c.text) {
				if err := m.feed(c.text[i]); err != nil {
					b.Fatal(err)
				}
			}
			return m
		}
		b.Run("first/"+c.name, func(b *testing.B) {
			for b.Loop() {
				clear(v.masks)
				at().Mask(logits)
			}
		})
		b.Run("warm/"+c.name, func(b *testing.B) {
			m := at()
			m.Mask(logits)
			for b.Loop() {
				m.current = false
				m.Mask(logits)
			}
		})
		b.Run("new-answer/"+c.name, func(b *testing.B) {
			for b.Loop() {
				at().Mask(logits)
			}
		})
	}
}

// BenchmarkAnswer is masks and tokens of a whole answer, in µs a token.
func BenchmarkAnswer(b *testing.B) {
	v, tok := realVocabulary(b, "llama3")
	text := `{"name": "` + strings.Repeat("The quick brown fox jumps. ", 15) + `", "code": "` + strings.Repeat("The quick brown fox jumps. ", 15) + `", "price": 1.5, "tags": ["red", "blue"]}`
	ids, err := tok.Encode(text, false)
	if err != nil {
		b.Fatal(err)
	}
	g := mustSchema(b, benchSchema, true)
	logits := make([]float32, len(v.tokens))
	for b.Loop() {
		m := NewMatcher(g, v)
		for _, id := range ids {
			m.Mask(logits)
			if err := m.Accept(id); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(ids)), "µs/token")
}

// feed reads one byte, whether or not it is a token.
func (m *Matcher) feed(c byte) error {
	to := m.m.afterByte(m.set, c)
	if to.id == dead {
		return ErrNotAllowed
	}
	m.set, m.current = to, false
	return nil
}
