package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// normalizer rewrites a piece of text before it is cut into words.
type normalizer func(string) string

// maxNesting bounds how deep Sequence components may lie in each other.
const maxNesting = 4

var errNesting = fmt.Errorf("a Sequence is nested more than %d deep", maxNesting)

func parseNormalizer(raw json.RawMessage) (normalizer, error) {
	if isNull(raw) {
		return nil, nil
	}
	return parseNormalizerAt(raw, 0)
}

func parseNormalizerAt(raw json.RawMessage, depth int) (normalizer, error) {
	if depth > maxNesting {
		return nil, errNesting
	}
	kind, err := kindOf(raw)
	if err != nil {
		return nil, err
	}
	kinds := map[string]func() (normalizer, error){
		"NFC": func() (normalizer, error) {
			var c struct {
				Type string `json:"type"`
			}
			return nfc, decodeStrict(raw, &c)
		},
		"Prepend": func() (normalizer, error) {
			var c struct {
				Type    string `json:"type"`
				Prepend string `json:"prepend"`
			}
			prepend := func(s string) string {
				if s == "" {
					return s
				}
				return c.Prepend + s
			}
			return prepend, decodeStrict(raw, &c)
		},
		"Replace": func() (normalizer, error) {
			from, to, err := parseReplace(raw)
			return func(s string) string { return strings.ReplaceAll(s, from, to) }, err
		},
		"Sequence": func() (normalizer, error) {
			var c struct {
				Type        string            `json:"type"`
				Normalizers []json.RawMessage `json:"normalizers"`
			}
			if err := decodeStrict(raw, &c); err != nil {
				return nil, err
			}
			var steps []normalizer
			for i, part := range c.Normalizers {
				step, err := parseNormalizerAt(part, depth+1)
				if err != nil {
					return nil, fmt.Errorf("normalizers[%d]: %w", i, err)
				}
				steps = append(steps, step)
			}
			return func(s string) string {
				for _, step := range steps {
					s = step(s)
				}
				return s
			}, nil
		},
	}
	parse, ok := kinds[kind]
	if !ok {
		return nil, unsupported(kind, kinds)
	}
	n, err := parse()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	return n, nil
}

// splitPattern is a Pattern of tokenizer.json: a plain string or a regular
// expression.
type splitPattern struct {
	String *string `json:"String"`
	Regex  *string `json:"Regex"`
}

// parseReplace reads a Replace component, as normaliser or decoder.
func parseReplace(raw json.RawMessage) (from, to string, err error) {
	var c struct {
		Type    string       `json:"type"`
		Pattern splitPattern `json:"pattern"`
		Content string       `json:"content"`
	}
	if err := decodeStrict(raw, &c); err != nil {
		return "", "", err
	}
	switch {
	case c.Pattern.Regex != nil:
		return "", "", fmt.Errorf("regular expression %q is not supported", *c.Pattern.Regex)
	case c.Pattern.String == nil || *c.Pattern.String == "":
		return "", "", errors.New("pattern: want a non-empty String")
	}
	return *c.Pattern.String, c.Content, nil
}
