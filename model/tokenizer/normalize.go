package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
)

// normalizer rewrites a piece of text before it is cut into words, step by step.
// Without steps the text stays as it is.
type normalizer []normalizeStep

type normalizeStep struct {
	name string // as errors give it

	// apply returns errExpands instead of a text of more than limit bytes.
	apply func(s string, limit int) (string, error)
}

// normalize returns the normalised text, or an error that names the step whose text would
// have more than limit bytes.
func (n normalizer) normalize(s string, limit int) (string, error) {
	for _, step := range n {
		var err error
		if s, err = step.apply(s, limit); err != nil {
			return "", fmt.Errorf("normalizer: %s: %w", step.name, err)
		}
	}
	return s, nil
}

func parseNormalizer(raw json.RawMessage) (normalizer, error) {
	if isNull(raw) {
		return nil, nil
	}
	n, err := parseNormalizerAt(raw, 0)
	if err == nil && len(n) > maxSteps {
		err = errSteps
	}
	return n, err
}

func parseNormalizerAt(raw json.RawMessage, depth int) (n normalizer, err error) {
	step := func(name string, apply func(s string, limit int) (string, error)) { n = normalizer{{name, apply}} }
	err = component(raw, depth, map[string]func() error{
		"NFC": func() error {
			step("NFC", func(s string, limit int) (string, error) { return checkLimit(nfc(s), limit) })
			return noOptions(raw)
		},
		"Prepend": func() error {
			var c struct {
				Type    string `json:"type"`
				Prepend string `json:"prepend"`
			}
			if err := decodeStrict(raw, &c); err != nil {
				return err
			}
			if len(c.Prepend) > maxAddedToken {
				return fmt.Errorf("prepend of %d bytes, at most %d are supported", len(c.Prepend), maxAddedToken)
			}
			step("Prepend", func(s string, limit int) (string, error) {
				if s == "" {
					return s, nil
				}
				return checkLimit(c.Prepend+s, limit)
			})
			return nil
		},
		"Replace": func() error {
			replace, _, err := parseReplace(raw)
			step("Replace", replace)
			return err
		},
		"Sequence": func() error {
			var c struct {
				Type        string            `json:"type"`
				Normalizers []json.RawMessage `json:"normalizers"`
			}
			if err := decodeStrict(raw, &c); err != nil {
				return err
			}
			return sequenceParts("normalizers", c.Normalizers, func(i int, part json.RawMessage) error {
				inner, err := parseNormalizerAt(part, depth+1)
				for _, s := range inner {
					n = append(n, normalizeStep{fmt.Sprintf("normalizers[%d]: %s", i, s.name), s.apply})
				}
				return err
			})
		},
	})
	return n, err
}

// parseReplace reads a Replace component, as normaliser or decoder, and its pattern.
func parseReplace(raw json.RawMessage) (replace func(s string, limit int) (string, error), p splitPattern, err error) {
	var c struct {
		Type    string       `json:"type"`
		Pattern splitPattern `json:"pattern"`
		Content string       `json:"content"`
	}
	if err := decodeStrict(raw, &c); err != nil {
		return nil, p, err
	}
	find, err := c.Pattern.newFinder()
	if err != nil {
		return nil, p, err
	}
	if from := c.Pattern.String; from != nil {
		return func(s string, limit int) (string, error) {
			if size := len(s) + strings.Count(s, *from)*(len(c.Content)-len(*from)); size > max(limit, len(s)) {
				return "", expands(size, limit)
			}
			return strings.ReplaceAll(s, *from, c.Content), nil
		}, c.Pattern, nil
	}
	return func(s string, limit int) (string, error) {
		var out strings.Builder
		done := 0
		err := find(s, func(start, end int) error {
			out.WriteString(s[done:start])
			out.WriteString(c.Content)
			done = end
			if out.Len() > limit {
				return expands(out.Len(), limit)
			}
			return nil
		})
		out.WriteString(s[done:])
		return out.String(), err
	}, c.Pattern, nil
}
